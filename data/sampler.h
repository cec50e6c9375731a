// Which sample comes when: pure functions of (seed, epoch, position), the same for any number of
// ranks.
#pragma once

#include <cstdint>

namespace trireme {

// A permutation of [0, size), without a table: a Feistel network over the next power of two, walked
// until it falls inside (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
class Permutation {
 public:
  Permutation(uint64_t seed, uint64_t epoch, int64_t size);
  // Of a position in [0, size).
  int64_t operator()(int64_t position) const;

 private:
  int64_t size_;
  int low_bits_;  // of a number's two halves, which differ by at most a bit
  int high_bits_;
  uint64_t key_;
};

// The part of a batch of `total` rows that a rank computes: a contiguous run; the first total %
// ranks ranks have one row more.
struct Share {
  int64_t begin = 0;
  int64_t rows = 0;
};
Share share_of(int64_t total, int rank, int ranks);

}  // namespace trireme
