// How long OpenMP's threads spin for each other before they sleep.
#pragma once

namespace trireme {

// Makes OpenMP's threads spin for at most a millisecond. By default libgomp's spin for 300,000
// pauses, some 10 ms, and LLVM's for 200 ms: longer than a time slice of the scheduler, so that on
// a busy machine a thread uses up the time in which the thread that it waits for could run.
//
// The runtimes read GOMP_SPINCOUNT and KMP_BLOCKTIME when they are loaded, so this executes the
// program again with both set. Returns when they are set, or the user has set GOMP_SPINCOUNT or
// OMP_WAIT_POLICY, or there is one core only, where libgomp hardly spins; also when the program
// cannot be executed again, and then the default stays. Requires that there are no other threads.
void limit_openmp_spinning(char** argv);

}  // namespace trireme
