// Tensors of the emulated GPU as numbers, for the stand-ins of libraries.
#pragma once

#include <cstdint>
#include <vector>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunknown-pragmas"  // nvcc knows them
#include "ops/cuda/element.h"
#pragma GCC diagnostic pop

namespace trireme::cuda {

using Values = std::vector<double>;

inline Values read(const void* tensor, DType dtype, int64_t count) {
  return with_element(dtype, [&]<class T>(T) {
    Values values(static_cast<size_t>(count));
    const T* from = static_cast<const T*>(tensor);
    for (double& value : values) value = to_float(*from++);
    return values;
  });
}

inline void write(const Values& values, DType dtype, void* tensor) {
  with_element(dtype, [&]<class T>(T) {
    T* to = static_cast<T*>(tensor);
    for (double value : values) *to++ = from_float<T>(static_cast<float>(value));
  });
}

}  // namespace trireme::cuda
