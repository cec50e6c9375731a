#include "core/signal_stack.h"

#include <signal.h>

#include <cstddef>
#include <memory>

namespace trireme {
namespace {

constexpr size_t kBytes = 256 << 10;  // enough for a handler that prints a backtrace

class SignalStack {
 public:
  SignalStack() : memory_(std::make_unique_for_overwrite<std::byte[]>(kBytes)) {
    stack_t stack = {};
    stack.ss_sp = memory_.get();
    stack.ss_size = kBytes;
    sigaltstack(&stack, nullptr);
  }
  ~SignalStack() {
    stack_t none = {};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace

void use_signal_stack() { thread_local const SignalStack stack; }

}  // namespace trireme
