#include "ops/cuda/libraries.h"

#include <fmt/format.h>

namespace trireme::ops::cuda {
namespace {

std::shared_ptr<const trireme::cuda::Library> open(const char* product,
                                                   const std::vector<std::string>& names,
                                                   const char* packages) {
  auto library = std::make_shared<const trireme::cuda::Library>(product, names);
  if (library->problem().empty()) return library;
  throw DeviceError(fmt::format("loading {}", product),
                    fmt::format("{}; it is available as {}", library->problem(), packages));
}

}  // namespace

std::shared_ptr<Libraries> open_libraries(Device& device, const CudaOptions& options) {
  // Handles belong to the current device of the thread; getting a stream's handle makes `device`
  // current.
  trireme::cuda::handle(*device.create_stream(StreamKind::kCompute));
  const auto cudnn = std::make_shared<Cudnn>(
      open("cuDNN", {"libcudnn.so.9"}, "Debian's cudnn9-cuda-13 and pip's nvidia-cudnn-cu13"));
  const auto cublaslt = std::make_shared<CublasLt>(
      open("cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so.12"},
           "part of the CUDA toolkit, Debian's libcublas-13-0 and pip's nvidia-cublas"));
  const auto tuner = [&](const std::string& library) {
    const trireme::cuda::Properties& properties = trireme::cuda::properties(device);
    return Tuner(device, options.tuning_cache,
                 fmt::format("{} on {}, {} multiprocessors", library, properties.name,
                             properties.multiprocessors),
                 options.measure);
  };
  return std::make_shared<Libraries>(
      Libraries{cudnn, cublaslt, tuner(cudnn->name()), tuner(cublaslt->name())});
}

}  // namespace trireme::ops::cuda
