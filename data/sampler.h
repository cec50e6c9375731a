// The order of samples in an epoch: pure functions of (seed, epoch, position), which do not depend
// on the number of ranks.
#pragma once

#include <cstdint>
#include <memory>

#include "data/classes.h"
#include "data/dataset.h"
#include "data/length_buckets.h"

namespace trireme::data {

// A random permutation of [0, size) that needs no table: a Feistel network over the next power of
// two with cycle walking (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
class Permutation {
 public:
  // `number` distinguishes several permutations of the same epoch.
  Permutation(uint64_t seed, uint64_t epoch, int64_t size, uint64_t number = 0);
  // Returns the value at a position in [0, size).
  int64_t operator()(int64_t position) const;
  // Returns the position of a value in [0, size).
  int64_t position_of(int64_t value) const;

 private:
  uint64_t forward(uint64_t value) const;
  uint64_t backward(uint64_t value) const;

  int64_t size_;
  int low_bits_;  // bits of the two halves of a number, which differ by at most one
  int high_bits_;
  uint64_t key_;
};

// The order of the samples in an epoch.
struct OrderOptions {
  bool shuffle = true;  // false for the order of their indices
  // If `block` is 0, shuffles the entire dataset. Otherwise shuffles the order of blocks of `block`
  // consecutive samples, and then the positions within each window of `window` samples
  // (data.shuffle_window).
  int64_t block = 0;
  int64_t window = 0;
  // If positive, samples are not shuffled: they are divided into this many parts of consecutive
  // samples, which are read at the same time. The positions of a multiple of `streams` and the
  // following `streams` - 1 are the next samples of the parts, in the order of the parts; the first
  // parts may have one sample more than the others.
  int64_t streams = 0;
  // If not null, samples are drawn with replacement (data.sampling).
  std::shared_ptr<const BalancedDraws> balanced = nullptr;
  // If not null, samples of similar length are together (data.length_buckets).
  std::shared_ptr<const LengthBuckets> buckets = nullptr;
};

// Returns the order of the training samples that `config` describes. Throws ConfigError
// ("data.sampling...", "data.shuffle_window...", "data.length_buckets...") if it is invalid.
OrderOptions order_options(const DataConfig& config, const Dataset& training);
// Returns the order of evaluation samples: that of their indices or, if those of the training are
// in buckets, in buckets of the same lengths.
OrderOptions evaluation_order(const OrderOptions& training, const Dataset& evaluation);

// Maps each position of an epoch, in [0, size), to a sample in [0, size). Each sample occurs once
// unless samples are drawn with replacement. Takes constant memory.
class Order {
 public:
  Order(const OrderOptions& options, uint64_t seed, int64_t epoch, int64_t size);
  int64_t operator()(int64_t position) const;
  // Returns the length to which a batch of `rows` samples from a position on is cut, in tokens; 0
  // if samples are whole.
  int64_t batch_length(int64_t position, int64_t rows) const;
  SampleId at(int64_t position) const {
    return {(*this)(position), static_cast<int64_t>(epoch_), options_.balanced ? position : -1};
  }

 private:
  // Returns the sample at a position in the shuffled sequence of blocks.
  int64_t in_blocks(int64_t position) const;
  LengthBuckets::Epoch bucket_epoch() const { return {seed_, epoch_, options_.shuffle}; }

  OrderOptions options_;
  uint64_t seed_;
  uint64_t epoch_;
  int64_t size_;
  Permutation permutation_;  // of samples, or of blocks
  // The positions of the last block, which may be shorter than the others.
  int64_t last_begin_ = 0;
  int64_t last_end_ = 0;
};

// The contiguous rows of a global batch that a rank computes. Of a batch of `total` rows, the first
// total % ranks ranks have one row more than the others.
struct Share {
  int64_t begin = 0;
  int64_t rows = 0;
};
Share share_of(int64_t total, int rank, int ranks);

}  // namespace trireme::data
