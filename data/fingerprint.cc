#include "data/fingerprint.h"

#include <xxhash.h>

#include <algorithm>

#include "data/dataset.h"
#include "data/tokenizers/tokenizer.h"

namespace trireme::data {
namespace {

constexpr int64_t kMaxBytesRead = 64 << 20;
constexpr int64_t kMinSamplesRead = 64;

}  // namespace

uint64_t checksum(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

CheckedSamples::CheckedSamples(int64_t size, size_t bytes) : size_(size), count_(size) {
  const bool all = bytes > 0 && size <= kMaxBytesRead / static_cast<int64_t>(bytes);
  if (!all) count_ = std::min(size, kMinSamplesRead);
}

Fingerprint fingerprint_of(const Dataset& dataset) {
  const auto tokenizer = dataset.tokenizer();
  return {dataset.size(), dataset.spec().classes, dataset.checksums(), dataset.columns().names,
          tokenizer ? tokenizer->identity() : ""};
}

}  // namespace trireme::data
