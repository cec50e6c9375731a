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
constexpr int kGenerations = 5;  // scripts between the launcher and its rank

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

// In the process that is left behind, with a copy of locks that nobody will release.
[[noreturn]] void see_to_it(int launcher) {
  setsid();  // the launcher ends the sessions of its ranks
  // Whoever reads what the ranks print is not to wait for this.
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
  // Not fork(), which would wait for locks of libraries.
  if (_Fork() == 0) see_to_it(launcher);
  close(launcher);
}

}  // namespace trireme::comm
