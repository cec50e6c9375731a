// A fake of NVIDIA's driver library that finds no GPU, installed as libcuda.so.1 in a folder of
// LD_LIBRARY_PATH. TRIREME_TEST_DRIVER is the CUDA version that it reports (default: 13000).
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {
constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE
int refuse() { return kNoDevice; }
}  // namespace

extern "C" {

int cuInit(unsigned) { return kNoDevice; }

int cuDriverGetVersion(int* version) {
  const char* set = std::getenv("TRIREME_TEST_DRIVER");
  *version = set ? std::atoi(set) : 13000;
  return 0;
}

// The CUDA runtime looks up all other functions here.
int cuGetProcAddress_v2(const char* name, void** function, int, uint64_t, int* status) {
  *function = reinterpret_cast<void*>(refuse);
  if (std::strcmp(name, "cuInit") == 0) *function = reinterpret_cast<void*>(cuInit);
  if (std::strcmp(name, "cuDriverGetVersion") == 0) {
    *function = reinterpret_cast<void*>(cuDriverGetVersion);
  }
  if (std::strcmp(name, "cuGetProcAddress") == 0) {
    *function = reinterpret_cast<void*>(cuGetProcAddress_v2);
  }
  if (status) *status = 0;
  return 0;
}
}
