// Whether samples are still those that a run was trained on, in a few bytes. docs/data.md lists
// what the checksums of each format see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

class Dataset;

// Of inputs and targets as they are stored: their order and contents. Neither depends on where
// files lie, when they were written or whether they are compressed, nor on transforms,
// data.normalize and data.mix.
struct Checksums {
  uint64_t inputs = 0;
  uint64_t targets = 0;
  bool operator==(const Checksums&) const = default;
};

struct Fingerprint {
  // Raised whenever the same samples get other checksums, which then cannot be compared.
  static constexpr int kVersion = 1;

  int64_t samples = 0;
  int classes = 0;  // 0: regression
  Checksums checksums;
  std::vector<std::string> columns = {};  // of a table with a header
  bool operator==(const Fingerprint&) const = default;
};

// Reads what Dataset::checksums does; never throws because of a bad record.
Fingerprint fingerprint_of(const Dataset& dataset);

// XXH3 (64 bits). `seed` chains calls: the checksum of what came before.
uint64_t checksum(std::span<const std::byte> bytes, uint64_t seed = 0);
template <class Range>
uint64_t checksum_of(const Range& values, uint64_t seed = 0) {
  return checksum(std::as_bytes(std::span(values)), seed);
}

// Which samples a checksum reads of a set that is not in memory: all where they are at most 64 MiB,
// else 64 that lie evenly among all, the first and the last among them.
class CheckedSamples {
 public:
  // `bytes` of one sample, 0 where that is not known.
  CheckedSamples(int64_t size, size_t bytes);

  int64_t count() const { return count_; }
  int64_t operator[](int64_t i) const {
    return count_ == size_ ? i : (size_ - 1) * i / (count_ - 1);
  }

 private:
  int64_t size_;
  int64_t count_;
};

}  // namespace trireme::data
