// Batches of texts of similar length, so that little of a batch is padding (data.length_buckets).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::data {

// The step between possible lengths of batches, in tokens. The tokens that random changes of a text
// add never carry it over a multiple of this, so that it stays in its bucket.
inline constexpr int64_t kLengthStep = 8;

// Returns the least possible length of a batch that holds a text of `tokens` tokens.
constexpr int64_t stepped_length(int64_t tokens, int64_t longest) {
  const int64_t stepped = (tokens + kLengthStep - 1) / kLengthStep * kLengthStep;
  return stepped < longest ? stepped : longest;
}

// Returns at most `count` ascending lengths such that little padding is needed if each text is
// padded to the next one, and `longest` after them if it is not the last. `lengths` are those of
// the texts, in [1, longest].
std::vector<int64_t> choose_lengths(std::span<const int32_t> lengths, int64_t longest,
                                    int64_t count);

// Orders samples such that the samples of a batch have similar lengths. A bucket holds the samples
// that need batches of the same length. In an epoch, the samples of each bucket are shuffled and
// cut into blocks of `block` samples, and the blocks of all buckets are shuffled. The samples that
// remain follow at the end, the shortest first. Takes 8 bytes per sample.
class LengthBuckets {
 public:
  // `ends` are the lengths of the batches, ascending; no sample has more tokens than the last.
  LengthBuckets(std::span<const int32_t> lengths, std::vector<int64_t> ends, int64_t block);

  const std::vector<int64_t>& ends() const { return ends_; }
  int64_t block() const { return block_; }

  // An epoch; without `shuffle`, samples are in the order of their buckets and indices.
  struct Epoch {
    uint64_t seed = 0;
    uint64_t epoch = 0;
    bool shuffle = true;
  };
  // Returns the sample at a position of an epoch. Each sample has one position.
  int64_t sample(const Epoch& epoch, int64_t position) const;
  // Returns the length of a batch of `rows` samples from a position on: that of its last bucket.
  int64_t batch_length(const Epoch& epoch, int64_t position, int64_t rows) const;

  // The tokens of an epoch and the padding that batches of a size add to them.
  struct Waste {
    double tokens = 0;   // of the texts
    double batches = 0;  // of the batches, padding included
    double whole = 0;    // of samples of the last length
    double share() const { return 1 - tokens / batches; }
    double share_of_whole() const { return 1 - tokens / whole; }
  };
  Waste waste(const Epoch& epoch, int64_t global_batch) const;

 private:
  struct Place {
    size_t bucket = 0;
    int64_t index = 0;  // in the shuffled bucket
  };
  Place place_of(const Epoch& epoch, int64_t position) const;
  int64_t size_of(size_t bucket) const { return begins_[bucket + 1] - begins_[bucket]; }

  std::vector<int64_t> ends_;
  int64_t block_;
  double tokens_ = 0;
  std::vector<int64_t> samples_;  // by bucket
  // The first of each bucket, and the end: in samples_, among all whole blocks, and among the
  // samples that remain.
  std::vector<int64_t> begins_, first_blocks_, first_remaining_;
};

}  // namespace trireme::data
