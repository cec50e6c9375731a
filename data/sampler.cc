#include "data/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>

#include "core/error.h"
#include "core/random.h"
#include "data/data.pb.h"

namespace trireme::data {
namespace {

// Even, so that both halves end up in their original positions. Four rounds suffice for wide
// halves; narrow ones need more. The domain has a minimum size, since a Feistel network over very
// few bits produces some permutations more often than others.
constexpr uint64_t kRounds = 8;
constexpr int kMinBits = 6;

constexpr int kMaxBuckets = 32;

uint64_t mask(int bits) { return (uint64_t{1} << bits) - 1; }

std::shared_ptr<const LengthBuckets> make_buckets(const DataConfig& config,
                                                  const Dataset& training) {
  const LengthBucketsConfig& options = config.length_buckets();
  const std::vector<int32_t> lengths = training.lengths();
  if (lengths.empty()) {
    throw ConfigError(
        "data.length_buckets",
        "needs samples with padding (data.labeled_text), not " + training.description());
  }
  if (options.count() < 1 || options.count() > kMaxBuckets) {
    throw ConfigError("data.length_buckets.count",
                      fmt::format("{} is not in [1, {}]", options.count(), kMaxBuckets));
  }
  if (options.block() < 1) {
    throw ConfigError("data.length_buckets.block",
                      fmt::format("{} is less than 1", options.block()));
  }
  return std::make_shared<const LengthBuckets>(
      lengths, choose_lengths(lengths, training.spec().input.shape[0], options.count()),
      options.block());
}

}  // namespace

Permutation::Permutation(uint64_t seed, uint64_t epoch, int64_t size, uint64_t number)
    : size_(size) {
  const int bits = std::max<int>(kMinBits, std::bit_width(static_cast<uint64_t>(size - 1)));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
  const Random4 r = Random(seed, RandomPurpose::kShuffle, epoch).four(number);
  key_ = uint64_t{r[1]} << 32 | r[0];
}

uint64_t Permutation::forward(uint64_t value) const {
  const uint64_t low_mask = mask(low_bits_);
  const uint64_t high_mask = mask(high_bits_);
  uint64_t low = value & low_mask;
  uint64_t high = value >> low_bits_;
  for (uint64_t round = 0; round < kRounds; round += 2) {
    high ^= mix64(key_ ^ (round << 56) ^ low) & high_mask;
    low ^= mix64(key_ ^ ((round + 1) << 56) ^ high) & low_mask;
  }
  return high << low_bits_ | low;
}

uint64_t Permutation::backward(uint64_t value) const {
  const uint64_t low_mask = mask(low_bits_);
  const uint64_t high_mask = mask(high_bits_);
  uint64_t low = value & low_mask;
  uint64_t high = value >> low_bits_;
  for (uint64_t round = kRounds; round > 0; round -= 2) {
    low ^= mix64(key_ ^ ((round - 1) << 56) ^ high) & low_mask;
    high ^= mix64(key_ ^ ((round - 2) << 56) ^ low) & high_mask;
  }
  return high << low_bits_ | low;
}

int64_t Permutation::operator()(int64_t position) const {
  auto value = static_cast<uint64_t>(position);
  do value = forward(value);
  while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

int64_t Permutation::position_of(int64_t value) const {
  auto position = static_cast<uint64_t>(value);
  do position = backward(position);
  while (position >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(position);
}

OrderOptions order_options(const DataConfig& config, const Dataset& training) {
  OrderOptions options;
  options.shuffle = config.shuffle();
  if (config.sampling() == DataConfig::BALANCED) {
    const std::string field = "data.sampling";
    const char* const other = !options.shuffle              ? "data.shuffle: false"
                              : config.has_shuffle_window() ? "data.shuffle_window"
                              : config.has_length_buckets() ? "data.length_buckets"
                                                            : nullptr;
    if (other) {
      throw ConfigError(field,
                        fmt::format("BALANCED draws from all samples at random; remove {}", other));
    }
    options.balanced =
        std::make_shared<const BalancedDraws>(labels_for(training, field), training.spec().classes);
    return options;
  }
  if (config.has_length_buckets()) options.buckets = make_buckets(config, training);
  if (!config.has_shuffle_window()) return options;
  options.block = config.shuffle_window().block();
  options.window = config.shuffle_window().window();
  if (options.block < 1) {
    throw ConfigError("data.shuffle_window.block", fmt::format("{} is less than 1", options.block));
  }
  if (options.window < options.block) {
    throw ConfigError("data.shuffle_window.window",
                      fmt::format("{} is less than data.shuffle_window.block, {}", options.window,
                                  options.block));
  }
  return options;
}

OrderOptions evaluation_order(const OrderOptions& training, const Dataset& evaluation) {
  OrderOptions options{.shuffle = false};
  if (!training.buckets) return options;
  const std::vector<int32_t> lengths = evaluation.lengths();
  if (lengths.empty()) return options;
  options.buckets = std::make_shared<const LengthBuckets>(lengths, training.buckets->ends(),
                                                          training.buckets->block());
  return options;
}

Order::Order(const OrderOptions& options, uint64_t seed, int64_t epoch, int64_t size)
    : options_(options),
      seed_(seed),
      epoch_(static_cast<uint64_t>(epoch)),
      size_(size),
      permutation_(seed, epoch_, options.block == 0 ? size : (size - 1) / options.block + 1) {
  if (options_.block == 0) return;
  const int64_t last = (size - 1) / options_.block;
  last_begin_ = permutation_.position_of(last) * options_.block;
  last_end_ = last_begin_ + (size - last * options_.block);
}

int64_t Order::operator()(int64_t position) const {
  if (options_.balanced) return (*options_.balanced)(seed_, epoch_, position);
  if (options_.streams > 0) {
    const int64_t stream = position % options_.streams;
    return stream * (size_ / options_.streams) + std::min(stream, size_ % options_.streams) +
           position / options_.streams;
  }
  if (options_.buckets) return options_.buckets->sample(bucket_epoch(), position);
  if (!options_.shuffle) return position;
  if (options_.block == 0) return permutation_(position);
  const int64_t window = position / options_.window;
  const int64_t begin = window * options_.window;
  const Permutation within(seed_, epoch_, std::min(options_.window, size_ - begin),
                           static_cast<uint64_t>(window) + 1);  // 0 permutes the blocks
  return in_blocks(begin + within(position - begin));
}

int64_t Order::batch_length(int64_t position, int64_t rows) const {
  if (!options_.buckets) return 0;
  const int64_t length = options_.buckets->batch_length(bucket_epoch(), position, rows);
  return length < options_.buckets->ends().back() ? length : 0;
}

int64_t Order::in_blocks(int64_t position) const {
  int64_t place = position / options_.block;
  int64_t offset = position % options_.block;
  if (position >= last_end_) {  // compute as if the last block had full length
    const int64_t missing = options_.block - (last_end_ - last_begin_);
    place = (position + missing) / options_.block;
    offset = (position + missing) % options_.block;
  }
  return permutation_(place) * options_.block + offset;
}

Share share_of(int64_t total, int rank, int ranks) {
  const int64_t rows = total / ranks;
  const int64_t larger_shares = total % ranks;
  return {rows * rank + std::min<int64_t>(rank, larger_shares),
          rows + (rank < larger_shares ? 1 : 0)};
}

}  // namespace trireme::data
