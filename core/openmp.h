// Limits how long OpenMP threads spin before they sleep.
#pragma once

namespace trireme {

// Makes waiting OpenMP threads spin for at most a millisecond before they sleep. By default libgomp
// spins for 300,000 pauses, about 10 ms, and LLVM's runtime for 200 ms. That exceeds a time slice
// of the scheduler, so on a busy machine a spinning thread uses up the time in which the thread
// that it waits for could run.
//
// The runtimes read GOMP_SPINCOUNT and KMP_BLOCKTIME when they are loaded, so this function sets
// both and executes the program again. It returns without doing so if they are already set, if the
// user has set GOMP_SPINCOUNT or OMP_WAIT_POLICY, if the process has a single core (where libgomp
// hardly spins), or if the program cannot be executed again. Requires that no other threads are
// running.
void limit_openmp_spinning(char** argv);

}  // namespace trireme
