#include "data/samples.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/random.h"

namespace trireme {
namespace {

class MemoryDataset final : public Dataset {
 public:
  explicit MemoryDataset(Samples samples)
      : samples_(std::move(samples)),
        input_bytes_(samples_.spec.input.bytes()),
        target_bytes_(samples_.spec.target.bytes()) {}

  const SampleSpec& spec() const override { return samples_.spec; }
  int64_t size() const override { return samples_.count; }
  void read(int64_t index, std::byte* input, std::byte* target) const override {
    if (index < 0 || index >= samples_.count) {
      throw DataError(samples_.source, fmt::format("sample {} was asked for, the last is {}", index,
                                                   samples_.count - 1));
    }
    const auto i = static_cast<size_t>(index);
    std::memcpy(input, samples_.inputs.data() + i * input_bytes_, input_bytes_);
    std::memcpy(target, samples_.targets.data() + i * target_bytes_, target_bytes_);
  }
  std::string description() const override {
    const std::string what =
        fmt::format("{}: {}", samples_.source, describe(samples_.spec, samples_.count));
    const int64_t bad = samples_.bad.count;
    return bad == 0 ? what : fmt::format("{}, {} bad record(s) left out", what, bad);
  }
  std::string where(int64_t) const override { return samples_.source; }
  bool in_memory() const override { return true; }
  BadRecords bad_records() const override { return samples_.bad; }

 private:
  const Samples samples_;
  const size_t input_bytes_;
  const size_t target_bytes_;
};

std::vector<uint8_t> rows_of(const std::vector<uint8_t>& from, size_t bytes,
                             const std::vector<bool>& chosen, bool value) {
  std::vector<uint8_t> to;
  for (size_t row = 0; row < chosen.size(); ++row) {
    if (chosen[row] != value) continue;
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(row * bytes);
    to.insert(to.end(), begin, begin + static_cast<std::ptrdiff_t>(bytes));
  }
  return to;
}

}  // namespace

void settle(const BadRecordPolicy& policy, Samples& samples) {
  policy.check(samples.source);
  samples.bad = policy.found();
  if (samples.count > 0) return;
  throw DataError(samples.source,
                  fmt::format("holds no good record, but {} bad ones; the first: {}",
                              samples.bad.count, samples.bad.first.front()));
}

void keep_rows(std::vector<uint8_t>& rows, size_t bytes, const std::vector<bool>& stays) {
  uint8_t* to = rows.data();
  for (size_t row = 0; row < stays.size(); ++row) {
    if (!stays[row]) continue;
    const uint8_t* from = rows.data() + row * bytes;
    if (to != from) std::memcpy(to, from, bytes);
    to += bytes;
  }
  rows.resize(static_cast<size_t>(to - rows.data()));
}

std::unique_ptr<Dataset> make_dataset(Samples samples) {
  return std::make_unique<MemoryDataset>(std::move(samples));
}

Samples split_off(const Samples& samples, double fraction, uint64_t seed, Part part) {
  const auto count = static_cast<size_t>(samples.count);
  const auto held = static_cast<size_t>(std::llround(fraction * static_cast<double>(count)));
  if (held == 0 || held == count) {
    throw DataError(samples.source,
                    fmt::format("data.holdout {} of {} samples leaves {} to train on", fraction,
                                count, count - held));
  }
  // The first steps of a Fisher-Yates shuffle draw `held` of them.
  const Random random(seed, RandomPurpose::kSplit);
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<bool> is_held(count, false);
  for (size_t i = 0; i < held; ++i) {
    const Random4 r = random.four(i);
    std::swap(order[i], order[i + (uint64_t{r[1]} << 32 | r[0]) % (count - i)]);
    is_held[order[i]] = true;
  }
  const bool wanted = part == Part::kEvaluation;
  Samples out;
  out.spec = samples.spec;
  out.count = static_cast<int64_t>(wanted ? held : count - held);
  out.inputs = rows_of(samples.inputs, samples.spec.input.bytes(), is_held, wanted);
  out.targets = rows_of(samples.targets, samples.spec.target.bytes(), is_held, wanted);
  out.bad = samples.bad;
  out.source = fmt::format("{} (part {:g})", samples.source, wanted ? fraction : 1 - fraction);
  return out;
}

std::string describe(const SampleSpec& spec, int64_t count) {
  const std::string goal = spec.classes > 0
                               ? fmt::format("in {} classes", spec.classes)
                               : fmt::format("with {} target(s)", spec.target.shape.elements());
  return fmt::format("{} samples of {} {} {}", count, name_of(spec.input.dtype),
                     spec.input.shape.to_string(), goal);
}

std::vector<uint8_t> label_bytes(std::span<const int32_t> labels) {
  std::vector<uint8_t> bytes(labels.size_bytes());
  if (!labels.empty()) std::memcpy(bytes.data(), labels.data(), bytes.size());
  return bytes;
}

}  // namespace trireme
