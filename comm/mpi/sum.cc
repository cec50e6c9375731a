#include "comm/mpi/sum.h"

#include <cstring>

#include "comm/communicator.h"
#include "comm/mpi/half.h"

namespace trireme::comm::mpi {
namespace {

// One block of each input is summed at a time, so that the sum stays in registers for any number of
// inputs.
constexpr size_t kBlockBytes = 128;

template <class T, size_t kCount>
void sum_some(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
              size_t offset) {
  T values[kCount];
  decltype(to_accumulator(T())) total[kCount];
  std::memcpy(values, inputs[0] + offset, sizeof values);
  for (size_t i = 0; i < kCount; ++i) total[i] = to_accumulator(values[i]);
  for (const std::byte* input : inputs.subspan(1)) {
    T term[kCount];
    std::memcpy(term, input + offset, sizeof term);
    for (size_t i = 0; i < kCount; ++i) total[i] += to_accumulator(term[i]);
  }
  for (size_t i = 0; i < kCount; ++i) values[i] = from_accumulator<T>(total[i]);
  for (std::byte* output : outputs) std::memcpy(output + offset, values, sizeof values);
}

template <class T>
void sum_all(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
             int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(T);
  size_t offset = 0;
  for (; offset + kBlockBytes <= bytes; offset += kBlockBytes) {
    sum_some<T, kBlockBytes / sizeof(T)>(inputs, outputs, offset);
  }
  for (; offset < bytes; offset += sizeof(T)) sum_some<T, 1>(inputs, outputs, offset);
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
                               count);  // unsigned: wraps without undefined behavior
    case DType::kF16:
      return sum_all<F16>(inputs, outputs, count);
    case DType::kBF16:
      return sum_all<BF16>(inputs, outputs, count);
    default:
      return check_summable("sum", dtype);
  }
}

}  // namespace trireme::comm::mpi
