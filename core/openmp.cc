#include "core/openmp.h"

#include <sched.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace trireme {
namespace {

// Number of pauses; takes 0.1 to 0.5 ms, depending on the processor. If every thread has a core,
// most waits within a step are shorter, so threads do not sleep.
constexpr const char* kSpinCount = "10000";
constexpr const char* kBlockTime = "1";  // ms

bool has_one_core() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) == 1;
}

}  // namespace

void limit_openmp_spinning(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY") || has_one_core()) return;
  // If the program was started as `ld.so PROGRAM`, /proc/self/exe points to ld.so.
  if (getauxval(AT_BASE) == 0) return;
  char path[PATH_MAX];  // execv() of the link itself would change the process name
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length < 0) return;
  path[length] = '\0';
  setenv("KMP_BLOCKTIME", kBlockTime, 0);
  if (setenv("GOMP_SPINCOUNT", kSpinCount, 0) == 0) execv(path, argv);
}

}  // namespace trireme
