#include "trainer/base/process.h"

#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace trireme::train {
namespace {

// Returns the value of a line "KEY   1234 kB" of /proc/self/status in bytes; 0 if there is none.
int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::atoll(line.c_str() + key.size()) * 1024;
  }
  return 0;
}

}  // namespace

double seconds_since_start() {
  // Field 22 is the start time in clock ticks since boot. Field 2, the name, may contain spaces and
  // ends at the last ')'.
  std::ifstream file("/proc/self/stat");
  std::string stat;
  std::getline(file, stat);
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double ticks = 0;
  fields >> ticks;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 -
         ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// The maximum of getrusage includes the launcher's memory before exec.
int64_t peak_resident_bytes() { return status_bytes("VmHWM:"); }
int64_t resident_bytes() { return status_bytes("VmRSS:"); }
int64_t address_bytes() { return status_bytes("VmSize:"); }

bool stdout_is_terminal() {
  if (!isatty(STDOUT_FILENO)) return false;
  const char* term = std::getenv("TERM");
  if (!term || std::string(term) == "dumb") return false;
  if (!std::getenv("OMPI_COMM_WORLD_SIZE")) return true;
  std::error_code none;
  const auto launcher =
      std::filesystem::read_symlink("/proc/" + std::to_string(getppid()) + "/fd/1", none);
  return launcher.string().starts_with("/dev/pts/") || launcher.string().starts_with("/dev/tty");
}

bool stdout_in_color() {
  const char* no_color = std::getenv("NO_COLOR");
  return stdout_is_terminal() && (!no_color || !*no_color);
}

int terminal_columns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const int number = columns ? std::atoi(columns) : 0;
  return number > 0 ? number : 80;
}

}  // namespace trireme::train
