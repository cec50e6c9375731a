// Divisions in kernels, including indices beyond 32 bits, for which tests do not have enough
// memory.
#include "ops/cuda/divisor.h"

#include <gtest/gtest.h>

namespace trireme::ops::cuda {
namespace {

constexpr int64_t kMax = int64_t{1} << 40;  // elements of a tensor of several TB

TEST(Divisor, MatchesIntegerDivision) {
  const int64_t divisors[] = {1,      2, 3, 7, 8, 10, 49, 224, 4095, 4096, 65537, (1 << 23) - 1,
                              1 << 23};
  for (int64_t d : divisors) {
    const Divisor divisor(d, kMax);
    EXPECT_EQ(divisor.value(), d);
    for (int64_t base : {int64_t{0}, d, 1000 * d, (int64_t{1} << 31) / d * d,
                         (int64_t{1} << 32) / d * d, kMax / d * d}) {
      for (int64_t n : {base - 1, base, base + 1}) {
        if (n < 0 || n > kMax) continue;
        const auto [quotient, remainder] = divisor.divide(n);
        EXPECT_EQ(quotient, n / d) << n << " / " << d;
        EXPECT_EQ(remainder, n % d) << n << " % " << d;
      }
    }
  }
}

TEST(Divisor, RejectsTooLargeDividends) {
  EXPECT_NO_THROW(Divisor((1 << 24) - 1, kMax));
  EXPECT_THROW(Divisor(1 << 24, kMax), Error);
}

}  // namespace
}  // namespace trireme::ops::cuda
