#include "comm/mpi/sum.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "comm/mpi/half.h"
#include "core/error.h"
#include "core/random.h"

namespace trireme::comm::mpi {
namespace {

template <class T>
void expect_sums(DType dtype) {
  const Random random(3, RandomPurpose::kSynthetic);
  for (size_t inputs = 1; inputs <= 9; ++inputs) {
    for (size_t count = 0; count < 150; count += count < 70 ? 1 : 13) {
      // Each input has a different offset from a cache line.
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
TEST(SumTest, RefusesOtherTypes) { EXPECT_THROW(sum(DType::kI32, {}, {}, 0), CommError); }

// Returns the value of a number in a format with `exponents` and `mantissas` bits.
double value_of(uint16_t bits, int exponents, int mantissas) {
  const int exponent = bits >> mantissas & ((1 << exponents) - 1);
  const int mantissa = bits & ((1 << mantissas) - 1);
  const int bias = (1 << (exponents - 1)) - 1;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponents) - 1) {
    return mantissa ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissas);
  return sign * std::ldexp(mantissa + (1 << mantissas), exponent - bias - mantissas);
}

template <class Half>
void expect_is_half(int exponents, int mantissas) {
  const auto value = [&](int bits) {
    return value_of(static_cast<uint16_t>(bits), exponents, mantissas);
  };
  const int infinity = ((1 << exponents) - 1) << mantissas;
  for (int bits = 0; bits <= 0xffff; ++bits) {
    const float wide = to_accumulator(Half{static_cast<uint16_t>(bits)});
    if (std::isnan(value(bits))) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
      ASSERT_TRUE(std::isnan(value(from_accumulator<Half>(wide).bits))) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(wide), value(bits)) << bits;
    ASSERT_EQ(from_accumulator<Half>(wide).bits, bits);
    if ((bits & 0x7fff) + 1 > infinity - 1) continue;
    // Values between two neighbors round to the nearer one, and in the middle to the even one.
    const auto middle = static_cast<float>((value(bits) + value(bits + 1)) / 2);
    ASSERT_EQ(from_accumulator<Half>(middle).bits, bits % 2 ? bits + 1 : bits) << bits;
    ASSERT_EQ(from_accumulator<Half>(std::nextafter(middle, static_cast<float>(value(bits)))).bits,
              bits);
    ASSERT_EQ(
        from_accumulator<Half>(std::nextafter(middle, static_cast<float>(value(bits + 1)))).bits,
        bits + 1);
  }
  // Half a step above the largest number rounds to infinity, anything less does not.
  const auto edge =
      static_cast<float>(value(infinity - 1) + (value(infinity - 1) - value(infinity - 2)) / 2);
  EXPECT_EQ(from_accumulator<Half>(edge).bits, infinity);
  EXPECT_EQ(from_accumulator<Half>(std::nextafter(edge, 0.0f)).bits, infinity - 1);
}

TEST(HalfTest, F16) { expect_is_half<F16>(5, 10); }
TEST(HalfTest, BF16) { expect_is_half<BF16>(8, 7); }

// Sums in half precision would lose the small values.
template <class Half>
void expect_rounds_once(DType dtype) {
  std::vector<std::vector<Half>> data;
  std::vector<const std::byte*> in;
  for (size_t i = 0; i < 9; ++i) {
    data.push_back(std::vector<Half>(100, from_accumulator<Half>(i == 0 ? 1.0f : 0x1p-12f)));
  }
  for (const auto& each : data) in.push_back(reinterpret_cast<const std::byte*>(each.data()));
  std::vector<Half> sums(100);
  auto* out = reinterpret_cast<std::byte*>(sums.data());
  sum(dtype, in, std::span(&out, 1), 100);
  const Half expected = from_accumulator<Half>(1 + 8 * 0x1p-12f);
  for (const Half& each : sums) ASSERT_EQ(each.bits, expected.bits);
}

TEST(SumTest, F16) {
  expect_rounds_once<F16>(DType::kF16);
  EXPECT_NE(from_accumulator<F16>(1 + 8 * 0x1p-12f).bits, from_accumulator<F16>(1).bits);
}
TEST(SumTest, BF16) { expect_rounds_once<BF16>(DType::kBF16); }

}  // namespace
}  // namespace trireme::comm::mpi
