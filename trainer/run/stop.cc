#include "trainer/run/stop.h"

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
// In place of a signal's number: another rank was told.
constexpr int kAnother = -1;

// A handler can reach nothing else.
std::atomic<int> g_signal{0};
sem_t g_told;
static_assert(std::atomic<int>::is_always_lock_free);

void note(int signal) {
  int none = 0;
  if (g_signal.compare_exchange_strong(none, signal)) sem_post(&g_told);
}

void handle(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | SA_ONSTACK;  // see core/signal_stack.h
  sigemptyset(&action.sa_mask);
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals(double grace) {
  g_signal = 0;
  sem_init(&g_told, 0, 0);
  if (grace > 0) timer_ = std::thread([this, grace] { keep_deadline(grace); });
  use_signal_stack();
  handle(note);
}

StopSignals::~StopSignals() {
  handle(SIG_IGN);
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ended_.notify_all();
  sem_post(&g_told);
  if (timer_.joinable()) timer_.join();
}

int StopSignals::signal() const { return g_signal; }

void StopSignals::follow() { note(kAnother); }

void StopSignals::at_deadline(std::function<void(double)> last_words) {
  std::lock_guard lock(mutex_);
  last_words_ = std::move(last_words);
}

void StopSignals::keep_deadline(double grace) {
  while (sem_wait(&g_told) != 0) {
  }
  std::unique_lock lock(mutex_);
  const auto rest = std::chrono::duration<double>(grace);
  if (ended_.wait_for(lock, rest, [this] { return ending_; })) return;
  if (last_words_) {
    last_words_(grace);
  } else {
    std::fprintf(stderr, "trireme: told to stop %g s ago; nothing is left to save\n", grace);
  }
  _exit(static_cast<int>(ExitCode::kResumable));
}

}  // namespace trireme::train
