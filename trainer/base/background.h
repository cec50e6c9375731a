// Setup of threads that do not take part in training.
#pragma once

namespace trireme::train {

// Makes the calling thread a background thread: it blocks all signals except those of a crash, has
// a lower priority than threads that compute, and appears in debuggers as `name` (at most 15
// characters).
void set_background_thread(const char* name);

}  // namespace trireme::train
