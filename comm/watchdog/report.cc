#include "comm/watchdog/report.h"

#include <fcntl.h>
#include <unistd.h>

#include "core/file.h"
#include "core/text.h"

namespace trireme::comm {

int open_log(const char* log) {
  return open(log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
}

void report(const std::string& text, const std::filesystem::path& log) {
  const std::string line = printable_message(text) + "\n";
  write_all(STDERR_FILENO, "trireme: " + line);
  if (log.empty()) return;
  const int file = open_log(log.c_str());
  if (file < 0) return;
  write_all(file, line);
  close(file);
}

}  // namespace trireme::comm
