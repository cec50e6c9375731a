// Upload of tables that a plan creates once for its kernels.
#pragma once

#include <vector>

#include "core/device.h"

namespace trireme::ops::cuda {

// Returns device memory with a copy of `values`. Blocks until the copy is done.
template <class T>
Buffer upload(Device& device, const std::vector<T>& values) {
  const size_t bytes = values.size() * sizeof(T);
  Buffer buffer = device.allocate(bytes);
  const auto stream = device.create_stream(StreamKind::kCopy);
  device.copy(buffer.data(), values.data(), bytes, *stream);
  stream->synchronize();
  return buffer;
}

}  // namespace trireme::ops::cuda
