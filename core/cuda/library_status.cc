// Status of the libraries that are loaded at run time, for `trireme doctor`.
#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "core/cuda/library.h"
#include "core/device.h"
#include "core/error.h"

namespace trireme {
namespace {

using cuda::Library;

struct Product {
  std::string name;
  std::vector<std::string> files;
  std::function<std::string(const cuda::Library&)> version;
};

// 91900 -> "9.19.0". The factors of the parts differ between products.
std::string version_text(size_t code, size_t major, size_t minor) {
  return fmt::format("{}.{}.{}", code / major, code % major / minor, code % minor);
}

std::string driver_version(const cuda::Library& nvml) {
  char text[80] = "";
  if (nvml.function<int()>("nvmlInit_v2")() != 0) return "unknown";
  nvml.function<int(char*, unsigned)>("nvmlSystemGetDriverVersion")(text, sizeof(text));
  nvml.function<int()>("nvmlShutdown")();
  return text;
}

std::vector<Product> products() {
  return {
      {"cuDNN",
       {"libcudnn.so.9"},
       [](const cuda::Library& library) {
         return version_text(library.function<size_t()>("cudnnGetVersion")(), 10000, 100);
       }},
      {"cuBLASLt",
       {"libcublasLt.so.13", "libcublasLt.so.12"},
       [](const cuda::Library& library) {
         return version_text(library.function<size_t()>("cublasLtGetVersion")(), 10000, 100);
       }},
      {"NCCL",
       {"libnccl.so.2"},
       [](const cuda::Library& library) {
         int code = 0;
         library.function<int(int*)>("ncclGetVersion")(&code);
         return version_text(code, 10000, 100);
       }},
      {"NVML", {"libnvidia-ml.so.1"}, driver_version},
  };
}

}  // namespace

std::vector<LibraryStatus> cuda_libraries() {
  std::vector<LibraryStatus> statuses;
  for (const Product& product : products()) {
    const cuda::Library library(product.name, product.files);
    LibraryStatus status{
        .name = product.name, .path = library.path(), .problem = library.problem()};
    try {
      if (status.problem.empty()) status.version = product.version(library);
    } catch (const DeviceError& error) {
      status.problem = error.what();
    }
    statuses.push_back(std::move(status));
  }
  return statuses;
}

}  // namespace trireme
