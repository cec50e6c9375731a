#include "trainer/run/stop_signals.h"

#include <semaphore.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>

#include "core/signal_stack.h"

namespace trireme::train {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
// Stands for a signal to another rank.
constexpr int kPeer = -1;

// Global, since a signal handler can access nothing else.
std::atomic<int> g_signal{0};
sem_t g_stop_requested;
static_assert(std::atomic<int>::is_always_lock_free);

void request_stop(int signal) {
  int none = 0;
  if (g_signal.compare_exchange_strong(none, signal)) sem_post(&g_stop_requested);
}

void set_handler(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | SA_ONSTACK;  // see core/signal_stack.h
  sigemptyset(&action.sa_mask);
  for (const int signal : kSignals) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    const bool nohup = signal == SIGHUP && before.sa_handler == SIG_IGN;
    if (!nohup) sigaction(signal, &action, nullptr);
  }
}

}  // namespace

StopSignals::StopSignals(double grace)
    : deadline_callback_([](double seconds) {
        std::fprintf(stderr,
                     "trireme: still starting %g s after the request to stop; nothing is saved\n",
                     seconds);
        return ExitCode::kFailure;
      }) {
  g_signal = 0;
  sem_init(&g_stop_requested, 0, 0);
  if (grace > 0) timer_ = std::thread([this, grace] { enforce_deadline(grace); });
  use_signal_stack();
  set_handler(request_stop);
}

StopSignals::~StopSignals() {
  set_handler([](int) {});  // not SIG_IGN, which stands for nohup
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ended_.notify_all();
  sem_post(&g_stop_requested);
  if (timer_.joinable()) timer_.join();
}

int StopSignals::signal() const { return g_signal; }

void StopSignals::request_by_peer() { request_stop(kPeer); }

void StopSignals::on_deadline(Deadline callback) {
  std::lock_guard lock(mutex_);
  deadline_callback_ = std::move(callback);
}

void StopSignals::enforce_deadline(double grace) {
  while (sem_wait(&g_stop_requested) != 0) {
  }
  std::unique_lock lock(mutex_);
  const auto rest = std::chrono::duration<double>(grace);
  if (ended_.wait_for(lock, rest, [this] { return ending_; })) return;
  _exit(static_cast<int>(deadline_callback_(grace)));
}

}  // namespace trireme::train
