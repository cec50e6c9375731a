#include "core/openmp.h"

#include <sched.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace trireme {
namespace {

// Pauses: 0.1 to 0.5 ms, depending on the processor. Where every thread has a core, most waits
// within a step are shorter, so that threads do not sleep.
constexpr const char* kSpins = "10000";
constexpr const char* kBlockTime = "1";  // ms

bool has_one_core() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) == 1;
}

}  // namespace

void limit_openmp_spinning(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY") || has_one_core()) return;
  // In a program started as `ld.so PROGRAM` the link below leads to ld.so.
  if (getauxval(AT_BASE) == 0) return;
  char path[PATH_MAX];  // execv() of the link itself would change the name of the process
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length < 0) return;
  path[length] = '\0';
  setenv("KMP_BLOCKTIME", kBlockTime, 0);
  if (setenv("GOMP_SPINCOUNT", kSpins, 0) == 0) execv(path, argv);
}

}  // namespace trireme
