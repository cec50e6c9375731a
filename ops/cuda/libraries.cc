#include "ops/cuda/libraries.h"

#include <fmt/format.h>

namespace trireme::cuda {

std::shared_ptr<Libraries> open_libraries(Device& device, const CudaOptions& options) {
  const auto tuner = [&](const std::string& library) {
    const Properties& its = properties(device);
    return Tuner(
        device, options.tuning_cache,
        fmt::format("{} on {}, {} multiprocessors", library, its.name, its.multiprocessors));
  };
  const auto cudnn = std::make_shared<Cudnn>();
  const auto cublaslt = std::make_shared<CublasLt>();
  return std::make_shared<Libraries>(
      Libraries{cudnn, cublaslt, tuner(cudnn->name()), tuner(cublaslt->name())});
}

}  // namespace trireme::cuda
