#include "comm/mpi/sum.h"

#include <cstring>

#include "comm/communicator.h"

namespace trireme::mpi {
namespace {

// One block of each input at a time, so that the sum stays in registers whatever the number of
// inputs.
constexpr size_t kBlockBytes = 128;

template <class T>
void sum_block(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
               size_t offset) {
  constexpr size_t kBlock = kBlockBytes / sizeof(T);
  T total[kBlock];
  std::memcpy(total, inputs[0] + offset, kBlockBytes);
  for (const std::byte* input : inputs.subspan(1)) {
    T term[kBlock];
    std::memcpy(term, input + offset, kBlockBytes);
    for (size_t i = 0; i < kBlock; ++i) total[i] += term[i];
  }
  for (std::byte* output : outputs) std::memcpy(output + offset, total, kBlockBytes);
}

template <class T>
void sum_one(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
             size_t offset) {
  T total;
  std::memcpy(&total, inputs[0] + offset, sizeof(T));
  for (const std::byte* input : inputs.subspan(1)) {
    T term;
    std::memcpy(&term, input + offset, sizeof(T));
    total += term;
  }
  for (std::byte* output : outputs) std::memcpy(output + offset, &total, sizeof(T));
}

template <class T>
void sum_all(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
             int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(T);
  size_t offset = 0;
  for (; offset + kBlockBytes <= bytes; offset += kBlockBytes) {
    sum_block<T>(inputs, outputs, offset);
  }
  for (; offset < bytes; offset += sizeof(T)) sum_one<T>(inputs, outputs, offset);
}

}  // namespace

void sum(DType dtype, std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
         int64_t count) {
  switch (dtype) {
    case DType::kF32:
      return sum_all<float>(inputs, outputs, count);
    case DType::kF64:
      return sum_all<double>(inputs, outputs, count);
    case DType::kI64:
      return sum_all<uint64_t>(inputs, outputs,
                               count);  // unsigned: wraps without undefined behaviour
    default:
      return check_summable("sum", dtype);
  }
}

}  // namespace trireme::mpi
