#include "data/length_buckets.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "data/sampler.h"

namespace trireme::data {
namespace {

constexpr int64_t kMaxCandidates = 512;

// Returns the index of the range that holds a value; range i begins at begins[i].
size_t range_of(const std::vector<int64_t>& begins, int64_t value) {
  return static_cast<size_t>(std::ranges::upper_bound(begins, value) - begins.begin()) - 1;
}

// Returns the possible lengths, ascending; the last is at least as large as all texts.
std::vector<int64_t> candidates_of(std::span<const int32_t> lengths, int64_t longest) {
  const int64_t needed = stepped_length(std::ranges::max(lengths), longest);
  const int64_t steps = (needed + kLengthStep - 1) / kLengthStep;
  const int64_t step = (steps + kMaxCandidates - 1) / kMaxCandidates * kLengthStep;
  std::vector<int64_t> candidates;
  for (int64_t length = step; length < needed; length += step) candidates.push_back(length);
  candidates.push_back(needed);
  return candidates;
}

}  // namespace

// best[j] is the least number of tokens of batches for the texts up to candidate j with some number
// of lengths, of which j is the last.
std::vector<int64_t> choose_lengths(std::span<const int32_t> lengths, int64_t longest,
                                    int64_t count) {
  const std::vector<int64_t> candidates = candidates_of(lengths, longest);
  const size_t n = candidates.size();
  std::vector<double> texts(n + 1);  // with at most as many tokens as the candidates before
  for (const int32_t length : lengths) {
    const auto place = std::ranges::lower_bound(candidates, int64_t{length});
    ++texts[static_cast<size_t>(place - candidates.begin()) + 1];
  }
  std::partial_sum(texts.begin(), texts.end(), texts.begin());
  const auto cost = [&](size_t first, size_t last) {
    return static_cast<double>(candidates[last]) * (texts[last + 1] - texts[first]);
  };
  std::vector<double> best(n);
  for (size_t j = 0; j < n; ++j) best[j] = cost(0, j);
  std::vector<std::vector<size_t>> previous;  // by the number of lengths after the first
  for (int64_t k = 1; k < std::min<int64_t>(count, std::ssize(candidates)); ++k) {
    std::vector<double> with_one_more(n, std::numeric_limits<double>::infinity());
    std::vector<size_t>& chosen = previous.emplace_back(n);
    for (size_t j = 1; j < n; ++j) {
      for (size_t i = 0; i < j; ++i) {
        const double total = best[i] + cost(i + 1, j);
        if (total < with_one_more[j]) with_one_more[j] = total, chosen[j] = i;
      }
    }
    best = std::move(with_one_more);
  }
  std::vector<int64_t> ends{candidates.back()};
  for (size_t j = n - 1; !previous.empty(); previous.pop_back()) {
    j = previous.back()[j];
    ends.insert(ends.begin(), candidates[j]);
  }
  if (ends.back() < longest) ends.push_back(longest);
  return ends;
}

LengthBuckets::LengthBuckets(std::span<const int32_t> lengths, std::vector<int64_t> ends,
                             int64_t block)
    : ends_(std::move(ends)), block_(block), samples_(lengths.size()), begins_(ends_.size() + 1) {
  const auto bucket_of = [&](int32_t length) {
    return static_cast<size_t>(std::ranges::lower_bound(ends_, int64_t{length}) - ends_.begin());
  };
  for (const int32_t length : lengths) {
    ++begins_[bucket_of(length) + 1];
    tokens_ += length;
  }
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  std::vector<int64_t> next = begins_;
  for (size_t i = 0; i < lengths.size(); ++i) {
    samples_[static_cast<size_t>(next[bucket_of(lengths[i])]++)] = static_cast<int64_t>(i);
  }
  first_blocks_.push_back(0);
  first_remaining_.push_back(0);
  for (size_t bucket = 0; bucket < ends_.size(); ++bucket) {
    first_blocks_.push_back(first_blocks_.back() + size_of(bucket) / block_);
    first_remaining_.push_back(first_remaining_.back() + size_of(bucket) % block_);
  }
}

LengthBuckets::Place LengthBuckets::place_of(const Epoch& epoch, int64_t position) const {
  if (!epoch.shuffle) {
    const size_t bucket = range_of(begins_, position);
    return {bucket, position - begins_[bucket]};
  }
  const int64_t blocks = first_blocks_.back();
  const int64_t remaining = position - blocks * block_;
  if (remaining >= 0) {
    const size_t bucket = range_of(first_remaining_, remaining);
    return {bucket, size_of(bucket) / block_ * block_ + remaining - first_remaining_[bucket]};
  }
  const int64_t block = Permutation(epoch.seed, epoch.epoch, blocks)(position / block_);
  const size_t bucket = range_of(first_blocks_, block);
  return {bucket, (block - first_blocks_[bucket]) * block_ + position % block_};
}

int64_t LengthBuckets::sample(const Epoch& epoch, int64_t position) const {
  Place place = place_of(epoch, position);
  if (epoch.shuffle) {  // number 0 permutes the blocks
    place.index =
        Permutation(epoch.seed, epoch.epoch, size_of(place.bucket), place.bucket + 1)(place.index);
  }
  return samples_[static_cast<size_t>(begins_[place.bucket] + place.index)];
}

// All samples of a block are in the same bucket, and buckets ascend behind the blocks.
int64_t LengthBuckets::batch_length(const Epoch& epoch, int64_t position, int64_t rows) const {
  const int64_t last = position + rows - 1;
  const int64_t blocks_end = epoch.shuffle ? first_blocks_.back() * block_ : 0;
  size_t bucket = place_of(epoch, last).bucket;
  for (int64_t p = position; p < std::min(last, blocks_end); p = (p / block_ + 1) * block_) {
    bucket = std::max(bucket, place_of(epoch, p).bucket);
  }
  return ends_[bucket];
}

LengthBuckets::Waste LengthBuckets::waste(const Epoch& epoch, int64_t global_batch) const {
  const auto size = std::ssize(samples_);
  Waste waste{.tokens = tokens_, .whole = static_cast<double>(size * ends_.back())};
  for (int64_t position = 0; position < size; position += global_batch) {
    const int64_t rows = std::min(global_batch, size - position);
    waste.batches += static_cast<double>(rows * batch_length(epoch, position, rows));
  }
  return waste;
}

}  // namespace trireme::data
