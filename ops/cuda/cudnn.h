// Convolutions as cuDNN offers them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/cuda/library.h"
#include "ops/cuda/context.h"
#include "ops/cuda/convolution.h"
#include "ops/cuda/tuner.h"

struct cudnnContext;
namespace cudnn_frontend {
class DeviceProperties;
}

namespace trireme::ops::cuda {

// The library and its handle. Used by one thread at a time.
class Cudnn {
 public:
  // On the current device.
  explicit Cudnn(std::shared_ptr<const trireme::cuda::Library> library);
  // For a device that is not here, in the JSON of CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION:
  // algorithms can be listed and built, and never run.
  Cudnn(std::shared_ptr<const trireme::cuda::Library> library, const std::string& absent_device);
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;
  ~Cudnn();

  std::string name() const;  // "cuDNN 9.19.0"
  // Of work that is queued next on the stream.
  cudnnContext* handle(Stream& stream) const;
  // To plan with, naming no stream: the one of the latest work may be gone. Null for an absent
  // device.
  cudnnContext* handle() const;
  const std::shared_ptr<cudnn_frontend::DeviceProperties>& absent_device() const {
    return absent_device_;
  }

 private:
  std::shared_ptr<const trireme::cuda::Library> library_;
  std::shared_ptr<cudnn_frontend::DeviceProperties> absent_device_;
  cudnnContext* handle_ = nullptr;
};

// Sums in f32 and deterministic. Throws Unsupported when there is none.
AlgorithmPtr find_convolution(const Context& context, const Convolution& convolution);

// All there are, cuDNN's best guess first. Throws Unsupported when cuDNN refuses at once.
std::vector<Candidate> list_convolutions(const std::shared_ptr<Cudnn>& cudnn,
                                         const Convolution& convolution);

}  // namespace trireme::ops::cuda
