// Where signal handlers run. Kernels that oneDNN generates use the stack pointer as a register like
// any other: it may point into the heap, and a signal that comes then would be handled there, over
// whatever it holds. So threads that compute have another stack for handlers, and handlers ask for
// it (SA_ONSTACK).
#pragma once

namespace trireme {

// Gives the calling thread such a stack, once; it goes with the thread.
void use_signal_stack();

}  // namespace trireme
