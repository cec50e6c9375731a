// Access to tensors of the emulated GPU as numbers, for fakes of libraries.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "core/alignment.h"
#include "core/error.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunknown-pragmas"  // nvcc knows them
#include "ops/cuda/element.h"
#pragma GCC diagnostic pop

namespace trireme::ops::cuda {

// The alignment of all tensors that ops/cuda guarantees to libraries.
inline constexpr size_t kTensorAlignment = 16;

// Throws DeviceError for a misaligned address, for which real libraries fail.
inline void require_aligned(const void* memory, size_t alignment) {
  if (reinterpret_cast<uintptr_t>(memory) % alignment == 0) return;
  throw DeviceError("emulated library",
                    fmt::format("{} is not a multiple of {}", memory, alignment));
}

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

}  // namespace trireme::ops::cuda
