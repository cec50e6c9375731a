#include "data/subset.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/random.h"
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

// Draws `held_out` of `count` samples by the first steps of a Fisher-Yates shuffle.
std::vector<bool> draw(size_t held_out, size_t count, uint64_t seed) {
  const Random random(seed, RandomPurpose::kSplit);
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<bool> is_held_out(count, false);
  for (size_t i = 0; i < held_out; ++i) {
    const Random4 r = random.four(i);
    std::swap(order[i], order[i + (uint64_t{r[1]} << 32 | r[0]) % (count - i)]);
    is_held_out[order[i]] = true;
  }
  return is_held_out;
}

}  // namespace

std::unique_ptr<Dataset> make_subset(std::unique_ptr<Dataset> dataset, double fraction,
                                     uint64_t seed, Part part) {
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
  const std::vector<bool> is_held_out = draw(held_out, count, seed);
  std::vector<int64_t> members;
  members.reserve(wanted ? held_out : count - held_out);
  for (size_t i = 0; i < count; ++i) {
    if (is_held_out[i] == wanted) members.push_back(static_cast<int64_t>(i));
  }
  return std::make_unique<Subset>(std::move(dataset), std::move(members),
                                  wanted ? fraction : 1 - fraction);
}

}  // namespace trireme::data
