// cuDNN, which computes convolutions and attention.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/cuda/library.h"
#include "ops/cuda/context.h"
#include "ops/cuda/convolution.h"
#include "ops/cuda/fused_attention.h"
#include "ops/cuda/tuner.h"

struct cudnnContext;
namespace cudnn_frontend {
class DeviceProperties;
}

namespace trireme::ops::cuda {

// The cuDNN library and a handle. Must be used by one thread at a time.
class Cudnn {
 public:
  // Creates a handle for the current device.
  explicit Cudnn(std::shared_ptr<const trireme::cuda::Library> library);
  // Creates a handle for a device that is not present, described by the JSON of
  // CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION and ten times its compute capability: algorithms can
  // be listed and built, but not run.
  Cudnn(std::shared_ptr<const trireme::cuda::Library> library, const std::string& absent_device,
        int capability);
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;
  ~Cudnn();

  std::string name() const;  // e.g. "cuDNN 9.19.0"
  // Sets the stream of the handle and returns the handle.
  cudnnContext* handle(Stream& stream) const;
  // Returns the handle for planning, without a stream, because the stream used last may have been
  // destroyed. Null for an absent device.
  cudnnContext* handle() const;
  const std::shared_ptr<cudnn_frontend::DeviceProperties>& absent_device() const {
    return absent_device_;
  }
  int absent_capability() const { return absent_capability_; }

 private:
  std::shared_ptr<const trireme::cuda::Library> library_;
  std::shared_ptr<cudnn_frontend::DeviceProperties> absent_device_;
  int absent_capability_ = 0;
  cudnnContext* handle_ = nullptr;
};

// Return an algorithm that is deterministic and accumulates in f32. Throw Unsupported if there is
// none.
AlgorithmPtr find_convolution(const Context& context, const Convolution& convolution);
AlgorithmPtr find_attention(const Context& context, const FusedAttention& attention);

// Return all algorithms, best first according to cuDNN's heuristic. Throw Unsupported if cuDNN does
// not support the operation.
std::vector<Candidate> list_convolutions(const std::shared_ptr<Cudnn>& cudnn,
                                         const Convolution& convolution);
std::vector<Candidate> list_attention(const std::shared_ptr<Cudnn>& cudnn,
                                      const FusedAttention& attention);

}  // namespace trireme::ops::cuda
