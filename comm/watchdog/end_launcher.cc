#include "comm/watchdog/end_launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "comm/watchdog/process.h"

namespace trireme::comm {
namespace {

constexpr std::array<std::string_view, 5> kLaunchers = {"mpirun", "orterun", "orted", "prterun",
                                                        "prted"};
constexpr int kGenerations = 5;  // max distance to the launcher, with scripts in between

pid_t find_launcher() {
  pid_t pid = getppid();
  for (int i = 0; i < kGenerations && pid > 1; ++i) {
    const auto found = read_stat(pid);
    if (!found) return 0;
    if (std::ranges::find(kLaunchers, found->name.data()) != kLaunchers.end()) return pid;
    pid = found->parent;
  }
  return 0;
}

bool ends_within(int process, int milliseconds) {
  pollfd waited = {process, POLLIN, 0};
  return poll(&waited, 1, milliseconds) != 0;
}

// Runs in the forked process, where locks held by other threads are never released.
[[noreturn]] void terminate_launcher(int launcher) {
  setsid();  // the launcher ends the sessions of its ranks
  // Close stdout and stderr, so that readers of the ranks' output do not wait for this process.
  if (launcher > 0) syscall(SYS_close_range, 0, launcher - 1, 0);
  syscall(SYS_close_range, launcher + 1, ~0U, 0);
  if (ends_within(launcher, 2000)) _exit(0);
  for (const int signal : {SIGTERM, SIGTERM, SIGKILL}) {
    syscall(SYS_pidfd_send_signal, launcher, signal, nullptr, 0);
    if (ends_within(launcher, 1000)) _exit(0);
  }
  _exit(0);
}

}  // namespace

void end_launcher_soon() noexcept {
  const pid_t pid = find_launcher();
  if (pid == 0) return;
  const auto launcher = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (launcher < 0) return;
  // fork() would wait for locks of libraries.
  if (_Fork() == 0) terminate_launcher(launcher);
  close(launcher);
}

}  // namespace trireme::comm
