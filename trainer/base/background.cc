#include "trainer/base/background.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <initializer_list>

namespace trireme::train {

void set_background_thread(const char* name) {
  sigset_t signals;
  sigfillset(&signals);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&signals, own);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // On Linux this affects only the calling thread.
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + 5);
  pthread_setname_np(pthread_self(), name);
}

}  // namespace trireme::train
