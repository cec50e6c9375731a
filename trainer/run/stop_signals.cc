#include "trainer/run/stop_signals.h"

#include <semaphore.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>

#include "core/error.h"
#include "core/signal_stack.h"

namespace trireme::train {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1};
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
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals(double grace) {
  g_signal = 0;
  sem_init(&g_stop_requested, 0, 0);
  if (grace > 0) timer_ = std::thread([this, grace] { enforce_deadline(grace); });
  use_signal_stack();
  set_handler(request_stop);
}

StopSignals::~StopSignals() {
  set_handler(SIG_IGN);
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

void StopSignals::on_deadline(std::function<void(double)> callback) {
  std::lock_guard lock(mutex_);
  deadline_callback_ = std::move(callback);
}

void StopSignals::enforce_deadline(double grace) {
  while (sem_wait(&g_stop_requested) != 0) {
  }
  std::unique_lock lock(mutex_);
  const auto rest = std::chrono::duration<double>(grace);
  if (ended_.wait_for(lock, rest, [this] { return ending_; })) return;
  if (deadline_callback_) {
    deadline_callback_(grace);
  } else {
    std::fprintf(stderr,
                 "trireme: still running %g s after the request to stop; nothing is left to save\n",
                 grace);
  }
  _exit(static_cast<int>(ExitCode::kResumable));
}

}  // namespace trireme::train
