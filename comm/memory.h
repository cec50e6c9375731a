// Addresses and sizes of arrays whose dtype is known at run time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace trireme::comm {

inline size_t bytes_of(int64_t count, DType dtype) {
  return static_cast<size_t>(count) * size_of(dtype);
}
inline std::byte* at(void* data, int64_t element, DType dtype) {
  return static_cast<std::byte*>(data) + bytes_of(element, dtype);
}
inline const std::byte* at(const void* data, int64_t element, DType dtype) {
  return static_cast<const std::byte*>(data) + bytes_of(element, dtype);
}

}  // namespace trireme::comm
