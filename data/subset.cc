#include "data/subset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "data/classes.h"
#include "data/samples.h"

namespace trireme::data {
namespace {

class Subset final : public WrappedDataset {
 public:
  Subset(std::unique_ptr<Dataset> dataset, std::vector<int64_t> members, double fraction)
      : WrappedDataset(std::move(dataset)), members_(std::move(members)), fraction_(fraction) {}

  int64_t size() const override { return static_cast<int64_t>(members_.size()); }
  void read(SampleId id, std::byte* input, std::byte* target) const override {
    inner().read({of(id.index), id.epoch, id.draw}, input, target);
  }
  bool continues(SampleId id) const override {
    return id.index > 0 && of(id.index) == of(id.index - 1) + 1 &&
           inner().continues({of(id.index), id.epoch, id.draw});
  }
  std::string description() const override {
    return fmt::format("{}, of which {} ({:g})", inner().description(), size(), fraction_);
  }
  std::string where(int64_t index) const override { return inner().where(of(index)); }
  std::optional<ImageInfo> stored_image(int64_t index) const override {
    return inner().stored_image(of(index));
  }
  std::vector<int32_t> labels() const override { return of_members(inner().labels()); }
  std::vector<int32_t> lengths() const override { return of_members(inner().lengths()); }
  Checksums checksums() const override {
    const Checksums all = inner().checksums();
    return {checksum_of(members_, all.inputs), checksum_of(members_, all.targets)};
  }

 private:
  int64_t of(int64_t index) const { return members_.at(index); }
  std::vector<int32_t> of_members(const std::vector<int32_t>& all) const {
    std::vector<int32_t> selected;
    if (all.empty()) return selected;
    selected.reserve(members_.size());
    for (const int64_t member : members_) selected.push_back(all.at(static_cast<size_t>(member)));
    return selected;
  }

  const std::vector<int64_t> members_;
  const double fraction_;
};

// Returns how many samples of each class are held out: a fraction of each, of which those with the
// largest remainders are rounded up until there are `total`, and then one at least, but not all, of
// a class with several samples.
std::vector<int64_t> quotas(const std::vector<int64_t>& counts, double fraction, int64_t total) {
  std::vector<int64_t> held_out;
  std::vector<double> remainders;
  for (const int64_t count : counts) {
    const double exact = fraction * static_cast<double>(count);
    held_out.push_back(static_cast<int64_t>(exact));
    remainders.push_back(exact - std::floor(exact));
  }
  std::vector<size_t> order(counts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t c) { return remainders[c]; });
  const int64_t missing = total - std::reduce(held_out.begin(), held_out.end());
  for (int64_t i = 0; i < std::min(missing, std::ssize(order)); ++i) {
    ++held_out[order[static_cast<size_t>(i)]];
  }
  for (size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] > 1) held_out[c] = std::clamp(held_out[c], int64_t{1}, counts[c] - 1);
  }
  return held_out;
}

// Draws samples in the order of a Fisher-Yates shuffle: the first `held_out` or, with labels, the
// first of each class.
std::vector<bool> draw(int64_t held_out, size_t count, const DataConfig& config,
                       const std::vector<int32_t>& labels, int classes) {
  const Random random(config.holdout_seed(), RandomPurpose::kSplit);
  std::vector<int64_t> left{held_out};
  if (!labels.empty()) left = quotas(class_counts(labels, classes), config.holdout(), held_out);
  int64_t all = std::reduce(left.begin(), left.end());
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<bool> is_held_out(count, false);
  for (size_t i = 0; all > 0; ++i) {
    const Random4 r = random.four(i);
    std::swap(order[i], order[i + (uint64_t{r[1]} << 32 | r[0]) % (count - i)]);
    int64_t& of_class = left[labels.empty() ? 0 : static_cast<size_t>(labels[order[i]])];
    if (of_class == 0) continue;
    --of_class;
    --all;
    is_held_out[order[i]] = true;
  }
  return is_held_out;
}

}  // namespace

std::unique_ptr<Dataset> make_subset(std::unique_ptr<Dataset> dataset, const DataConfig& config,
                                     Part part) {
  const double fraction = config.holdout();
  const size_t count = dataset->size();
  const size_t held_out = std::llround(fraction * static_cast<double>(count));
  if (held_out == 0 || held_out == count) {
    throw DataError(
        dataset->description(),
        fmt::format("data.holdout {} of {} samples leaves none to {}", fraction, count,
                    held_out == 0 ? "evaluate; set a larger fraction or separate evaluation data"
                                  : "train on"));
  }
  const bool wanted = part == Part::kEvaluation;
  std::vector<int32_t> labels;
  if (config.holdout_stratified()) labels = labels_for(*dataset, "data.holdout_stratified");
  const std::vector<bool> is_held_out =
      draw(static_cast<int64_t>(held_out), count, config, labels, dataset->spec().classes);
  std::vector<int64_t> members;
  members.reserve(wanted ? held_out : count - held_out);
  for (size_t i = 0; i < count; ++i) {
    if (is_held_out[i] == wanted) members.push_back(static_cast<int64_t>(i));
  }
  return std::make_unique<Subset>(std::move(dataset), std::move(members),
                                  wanted ? fraction : 1 - fraction);
}

}  // namespace trireme::data
