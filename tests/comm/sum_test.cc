#include "comm/mpi/sum.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/error.h"
#include "core/random.h"

namespace trireme::mpi {
namespace {

template <class T>
void expect_sums(DType dtype) {
  const Random random(3, RandomPurpose::kSynthetic);
  for (size_t inputs = 1; inputs <= 9; ++inputs) {
    for (size_t count = 0; count < 150; count += count < 70 ? 1 : 13) {
      // Each input starts at another distance from a cache line.
      std::vector<std::vector<T>> data(inputs);
      std::vector<const std::byte*> in;
      std::vector<std::byte*> out;
      for (size_t i = 0; i < inputs; ++i) {
        for (size_t k = 0; k < i + count + 1; ++k) {
          data[i].push_back(static_cast<T>(random.uniform_at(i * 1000 + k) * 1000));
        }
        in.push_back(reinterpret_cast<const std::byte*>(data[i].data() + i));
        if (i % 2 == 0) out.push_back(reinterpret_cast<std::byte*>(data[i].data() + i));
      }
      auto expected = data;
      for (size_t k = 0; k < count; ++k) {
        T total = data[0][k];
        for (size_t i = 1; i < inputs; ++i) total += data[i][i + k];
        for (size_t i = 0; i < inputs; i += 2) expected[i][i + k] = total;
      }
      sum(dtype, in, out, static_cast<int64_t>(count));
      ASSERT_EQ(data, expected) << inputs << " inputs of " << count;
    }
  }
}

TEST(SumTest, F32) { expect_sums<float>(DType::kF32); }
TEST(SumTest, F64) { expect_sums<double>(DType::kF64); }
TEST(SumTest, I64) { expect_sums<int64_t>(DType::kI64); }
TEST(SumTest, RefusesOtherTypes) { EXPECT_THROW(sum(DType::kF16, {}, {}, 0), CommError); }

}  // namespace
}  // namespace trireme::mpi
