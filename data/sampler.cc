#include "data/sampler.h"

#include <algorithm>
#include <bit>

#include "core/random.h"

namespace trireme {
namespace {

// Even, so that both halves end where they began. More than the four that suffice for wide halves,
// and never a domain of very few numbers: Feistel networks over a handful of bits reach some
// permutations more often than others.
constexpr uint64_t kRounds = 8;
constexpr int kLeastBits = 6;

uint64_t mask(int bits) { return (uint64_t{1} << bits) - 1; }

}  // namespace

Permutation::Permutation(uint64_t seed, uint64_t epoch, int64_t size) : size_(size) {
  const int bits = std::max<int>(kLeastBits, std::bit_width(static_cast<uint64_t>(size - 1)));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
  const Random4 r = Random(seed, RandomPurpose::kShuffle, epoch).four(0);
  key_ = uint64_t{r[1]} << 32 | r[0];
}

int64_t Permutation::operator()(int64_t position) const {
  const uint64_t low_mask = mask(low_bits_);
  const uint64_t high_mask = mask(high_bits_);
  auto value = static_cast<uint64_t>(position);
  do {
    uint64_t low = value & low_mask;
    uint64_t high = value >> low_bits_;
    for (uint64_t round = 0; round < kRounds; round += 2) {
      high ^= mix64(key_ ^ (round << 56) ^ low) & high_mask;
      low ^= mix64(key_ ^ ((round + 1) << 56) ^ high) & low_mask;
    }
    value = high << low_bits_ | low;
  } while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

Share share_of(int64_t total, int rank, int ranks) {
  const int64_t rows = total / ranks;
  const int64_t longer = total % ranks;
  return {rows * rank + std::min<int64_t>(rank, longer), rows + (rank < longer ? 1 : 0)};
}

}  // namespace trireme
