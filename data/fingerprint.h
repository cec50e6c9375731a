// A short fingerprint of a dataset, with which a resumed run detects that its data has changed.
// docs/data.md lists what the checksums of each format cover.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

class Dataset;

// Checksums of the order and contents of the stored inputs and targets. They do not depend on the
// paths of files, their modification times or compression, nor on transforms, data.normalize or
// data.mix.
struct Checksums {
  uint64_t inputs = 0;
  uint64_t targets = 0;
  bool operator==(const Checksums&) const = default;
};

struct Fingerprint {
  // Incremented when the checksums of the same samples change. Fingerprints of different versions
  // cannot be compared.
  static constexpr int kVersion = 1;

  int64_t samples = 0;
  int classes = 0;  // 0 for regression
  Checksums checksums;
  std::vector<std::string> columns = {};  // names, if the data is a table with a header
  std::string tokenizer = {};             // its identity(); empty if there is none
  bool operator==(const Fingerprint&) const = default;
};

// Returns the fingerprint of a dataset. Reads the same samples as Dataset::checksums. Never throws
// because of a bad record.
Fingerprint fingerprint_of(const Dataset& dataset);

// Returns the XXH3 hash (64 bits). To chain calls, pass the previous checksum as `seed`.
uint64_t checksum(std::span<const std::byte> bytes, uint64_t seed = 0);
template <class Range>
uint64_t checksum_of(const Range& values, uint64_t seed = 0) {
  return checksum(std::as_bytes(std::span(values)), seed);
}

// Selects the samples that a checksum reads from a dataset that is not in memory: all if they take
// up to 64 MiB, otherwise 64 evenly spaced ones, including the first and the last.
class CheckedSamples {
 public:
  // `bytes` is the size of a sample, or 0 if it is not known.
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
