// Which sample comes when: pure functions of (seed, epoch, position), the same for any number of
// ranks.
#pragma once

#include <cstdint>
#include <memory>

#include "data/classes.h"
#include "data/dataset.h"

namespace trireme::data {

// A permutation of [0, size), without a table: a Feistel network over the next power of two, walked
// until it falls inside (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
class Permutation {
 public:
  // `number` tells permutations of the same epoch apart.
  Permutation(uint64_t seed, uint64_t epoch, int64_t size, uint64_t number = 0);
  // Of a position in [0, size).
  int64_t operator()(int64_t position) const;
  // Where a value in [0, size) comes.
  int64_t position_of(int64_t value) const;

 private:
  uint64_t forward(uint64_t value) const;
  uint64_t backward(uint64_t value) const;

  int64_t size_;
  int low_bits_;  // of a number's two halves, which differ by at most a bit
  int high_bits_;
  uint64_t key_;
};

// How the samples of an epoch follow one another.
struct OrderOptions {
  bool shuffle = true;  // otherwise they come as they are numbered
  // 0: over the whole set. Otherwise runs of `block` neighbors come in random order, and of what
  // comes so each `window` positions are shuffled (data.shuffle_window).
  int64_t block = 0;
  int64_t window = 0;
  // Not null: instead of each coming once, samples are drawn (data.sampling).
  std::shared_ptr<const BalancedDraws> balanced = nullptr;
};

// Of the training samples. Throws ConfigError ("data.sampling...", "data.shuffle_window...").
OrderOptions order_options(const DataConfig& config, const Dataset& training);

// Which sample of [0, size) comes at a position of [0, size) of an epoch. Each comes once, unless
// they are drawn. Takes no memory that grows with the size.
class Order {
 public:
  Order(const OrderOptions& options, uint64_t seed, int64_t epoch, int64_t size);
  int64_t operator()(int64_t position) const;
  SampleId at(int64_t position) const {
    return {(*this)(position), static_cast<int64_t>(epoch_), options_.balanced ? position : -1};
  }

 private:
  // The sample at a position of the blocks in their random order.
  int64_t in_blocks(int64_t position) const;

  OrderOptions options_;
  uint64_t seed_;
  uint64_t epoch_;
  int64_t size_;
  Permutation whole_;  // of samples, or of blocks
  // With blocks: where the last one begins and ends, which may be shorter than the others.
  int64_t last_begin_ = 0;
  int64_t last_end_ = 0;
};

// The part of a batch of `total` rows that a rank computes: a contiguous run; the first total %
// ranks ranks have one row more.
struct Share {
  int64_t begin = 0;
  int64_t rows = 0;
};
Share share_of(int64_t total, int rank, int ranks);

}  // namespace trireme::data
