#include "comm/watchdog/kill_timer.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace trireme::comm {

std::optional<timer_t> kill_after(double seconds) noexcept {
  sigevent event = {};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer = nullptr;
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) return {};
  itimerspec when = {};
  when.it_value.tv_sec = static_cast<time_t>(seconds);
  when.it_value.tv_nsec =
      static_cast<long>((seconds - static_cast<double>(when.it_value.tv_sec)) * 1e9) + 1;
  timer_settime(timer, 0, &when, nullptr);
  return timer;
}

void arm_kill_timer(double seconds) noexcept {
  static std::atomic<bool> armed{false};
  if (armed.exchange(true) || kill_after(seconds)) return;
  // Fall back to SIGALRM, whose default action ends the process too.
  signal(SIGALRM, SIG_DFL);
  alarm(static_cast<unsigned>(seconds) + 1);
}

}  // namespace trireme::comm
