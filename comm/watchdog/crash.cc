#include "comm/watchdog/crash.h"

#include <execinfo.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstring>
#include <string_view>

#include "comm/watchdog/report.h"
#include "core/signal_stack.h"
#include "core/text.h"

namespace trireme::comm {
namespace {

struct Signal {
  int number;
  const char* text;
};
constexpr Signal kSignals[] = {{SIGSEGV, "crashed with SIGSEGV"},
                               {SIGBUS, "crashed with SIGBUS"},
                               {SIGFPE, "crashed with SIGFPE"},
                               {SIGILL, "crashed with SIGILL"},
                               {SIGABRT, "crashed with SIGABRT"}};

// Signal handlers can only reach globals, and may call async-signal-safe functions only.
std::atomic<Ledger*> g_ledger{nullptr};
std::array<char, 256> g_description{};
std::array<char, 128> g_hint{};  // at the cause of a crash
timespec g_exit_delay = {};

constexpr size_t kMaxLine = 1024;

class Line {
 public:
  Line& operator<<(std::string_view text) {
    const size_t length = std::min(text.size(), sizeof text_ - length_);
    std::memcpy(text_ + length_, text.data(), length);
    length_ += length;
    return *this;
  }
  Line& operator<<(int64_t number) {
    char digits[20];
    size_t begin = sizeof digits;
    for (int64_t rest = number; begin == sizeof digits || rest > 0; rest /= 10) {
      digits[--begin] = static_cast<char>('0' + rest % 10);
    }
    return *this << std::string_view(digits + begin, sizeof digits - begin);
  }
  std::string_view text() const { return {text_, length_}; }
  void write(int file) const { static_cast<void>(!::write(file, text_, length_)); }

 private:
  char text_[kMaxLine];
  size_t length_ = 0;
};

const char* text_of(int number) {
  for (const Signal& each : kSignals) {
    if (each.number == number) return each.text;
  }
  return "crashed";
}

// Reads a hexadecimal number at the beginning of the text and removes it and the next character.
uintptr_t take_hexadecimal(std::string_view& text) {
  uintptr_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  const auto length = static_cast<size_t>(end - text.data());
  text.remove_prefix(std::min(text.size(), length + 1));
  return error == std::errc() ? number : 0;
}

// Returns the file that is mapped at the address, from a line of /proc/self/maps such as
// "7f5a1000-7f5a3000 r--s 00000000 fe:00 1234    /data/train.npy"; empty if it is another mapping.
std::string_view file_if_mapped_at(uintptr_t address, std::string_view line) {
  const uintptr_t begin = take_hexadecimal(line);
  const uintptr_t end = take_hexadecimal(line);
  const size_t path = line.find('/');
  return begin <= address && address < end && path != line.npos ? line.substr(path)
                                                                : std::string_view();
}

// Appends the name of the file that is mapped at the address, if there is one.
void describe_mapped_file(const void* address, Line& text) {
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  char line[kMaxLine];
  size_t length = 0;
  for (char c; maps >= 0 && read(maps, &c, 1) == 1;) {
    if (c != '\n') {
      if (length < sizeof line) line[length++] = c;
      continue;
    }
    const std::string_view file =
        file_if_mapped_at(reinterpret_cast<uintptr_t>(address), {line, length});
    length = 0;
    if (file.empty()) continue;
    text << " in " << file << ", which was truncated during use or whose disk is full or failing";
    break;
  }
  close(maps);
}

void print(std::string_view crash, const Ledger* ledger) {
  Line line;
  line << "trireme: " << g_description.data() << " " << crash;
  if (ledger) {
    line << " in " << name_of(ledger->record().phase) << " of step " << ledger->record().step + 1;
  }
  line << "; backtrace:\n";
  line.write(STDERR_FILENO);
  void* frames[64];
  const int count = backtrace(frames, 64);
  backtrace_symbols_fd(frames, count, STDERR_FILENO);
  const int log = ledger && *ledger->log() ? open_log(ledger->log()) : -1;
  if (log < 0) return;
  line.write(log);
  backtrace_symbols_fd(frames, count, log);
  close(log);
}

void on_crash(int number, siginfo_t* info, void*) {
  static std::atomic<bool> first{true};
  if (!first.exchange(false)) {
    // Another thread is already reporting a crash, or this one has crashed while it did.
    nanosleep(&g_exit_delay, nullptr);
  } else {
    Line crash;
    crash << text_of(number);
    if (number == SIGBUS) describe_mapped_file(info->si_addr, crash);
    crash << g_hint.data();
    Ledger* ledger = g_ledger;
    if (ledger) ledger->fail(crash.text(), 128 + number, /*caused_by_peer=*/false);
    print(crash.text(), ledger);
    nanosleep(&g_exit_delay, nullptr);
  }
  signal(number, SIG_DFL);
  raise(number);
}

// Libraries crash where memory cannot be allocated.
std::string memory_hint() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return fmt::format(" (the limit of {} by ulimit -v may be the cause)",
                     format_bytes(static_cast<double>(limit.rlim_cur)));
}

}  // namespace

void handle_crashes(Ledger& ledger, const std::string& description, double exit_delay) {
  description.copy(g_description.data(), g_description.size() - 1);
  memory_hint().copy(g_hint.data(), g_hint.size() - 1);
  g_exit_delay.tv_sec = static_cast<time_t>(exit_delay);
  g_exit_delay.tv_nsec =
      static_cast<long>((exit_delay - static_cast<double>(g_exit_delay.tv_sec)) * 1e9);
  g_ledger = &ledger;
  void* frame = nullptr;
  backtrace(&frame, 1);  // the first call loads a library, which is not allowed in a handler
  use_signal_stack();
  struct sigaction action {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  for (const Signal& each : kSignals) sigaction(each.number, &action, nullptr);
}

void clear_crash_ledger() { g_ledger = nullptr; }

}  // namespace trireme::comm
