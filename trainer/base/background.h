// What threads beside training have in common.
#pragma once

namespace trireme::train {

// Of the calling thread: signals are left to the threads that look at them, but for those that tell
// of a crash; computation goes first where cores are short; and `name` (at most 15 characters) is
// what debuggers show.
void go_to_background(const char* name);

}  // namespace trireme::train
