#include "comm/watchdog/crash.h"

#include <execinfo.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string_view>

#include "core/signal_stack.h"

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
timespec g_exit_delay = {};

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
  void write() const { static_cast<void>(!::write(STDERR_FILENO, text_, length_)); }

 private:
  char text_[512];
  size_t length_ = 0;
};

const char* text_of(int number) {
  for (const Signal& each : kSignals) {
    if (each.number == number) return each.text;
  }
  return "crashed";
}

void print(int number, const Ledger* ledger) {
  Line line;
  line << "trireme: " << g_description.data() << " " << text_of(number);
  if (ledger) {
    line << " in " << name_of(ledger->record().phase) << " of step " << ledger->record().step + 1;
  }
  line << "; backtrace:\n";
  line.write();
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
}

void on_crash(int number) {
  static std::atomic<bool> first{true};
  if (!first.exchange(false)) {
    // Another thread is already reporting a crash, or this one has crashed while it did.
    nanosleep(&g_exit_delay, nullptr);
  } else {
    Ledger* ledger = g_ledger;
    if (ledger) ledger->fail(text_of(number), 128 + number, /*caused_by_peer=*/false);
    print(number, ledger);
    nanosleep(&g_exit_delay, nullptr);
  }
  signal(number, SIG_DFL);
  raise(number);
}

}  // namespace

void handle_crashes(Ledger& ledger, const std::string& description, double exit_delay) {
  description.copy(g_description.data(), g_description.size() - 1);
  g_exit_delay.tv_sec = static_cast<time_t>(exit_delay);
  g_exit_delay.tv_nsec =
      static_cast<long>((exit_delay - static_cast<double>(g_exit_delay.tv_sec)) * 1e9);
  g_ledger = &ledger;
  void* frame = nullptr;
  backtrace(&frame, 1);  // the first call loads a library, which is not allowed in a handler
  use_signal_stack();
  struct sigaction action {};
  action.sa_handler = on_crash;
  action.sa_flags = SA_ONSTACK | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  for (const Signal& each : kSignals) sigaction(each.number, &action, nullptr);
}

void clear_crash_ledger() { g_ledger = nullptr; }

}  // namespace trireme::comm
