// Alternate stacks for signal handlers. Kernels that oneDNN generates use the stack pointer as a
// general-purpose register, so it may point into the heap; a signal handler that ran there would
// overwrite heap memory. Threads that compute therefore have an alternate stack (sigaltstack), and
// handlers are installed with SA_ONSTACK.
#pragma once

namespace trireme {

// Installs an alternate signal stack for the calling thread and frees it when the thread exits.
// Further calls have no effect.
void use_signal_stack();

}  // namespace trireme
