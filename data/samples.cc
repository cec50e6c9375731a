#include "data/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace trireme::data {
namespace {

class MemoryDataset final : public Dataset {
 public:
  explicit MemoryDataset(Samples samples)
      : samples_(std::move(samples)),
        input_bytes_(samples_.spec.input.bytes()),
        target_bytes_(samples_.spec.target.bytes()) {}

  const SampleSpec& spec() const override { return samples_.spec; }
  int64_t size() const override { return samples_.count; }
  void read(SampleId id, std::byte* input, std::byte* target) const override {
    const int64_t index = id.index;
    if (index < 0 || index >= samples_.count) {
      throw DataError(samples_.source, fmt::format("sample {} is out of range; the last one is {}",
                                                   index, samples_.count - 1));
    }
    const size_t i = index;
    std::memcpy(input, samples_.inputs.data() + i * input_bytes_, input_bytes_);
    std::memcpy(target, samples_.targets.data() + i * target_bytes_, target_bytes_);
  }
  std::string description() const override {
    return fmt::format("{}: {}{}", samples_.source, describe(samples_.spec, samples_.count),
                       skipped_note(samples_.bad));
  }
  std::string where(int64_t) const override { return samples_.source; }
  bool in_memory() const override { return true; }
  BadRecords bad_records() const override { return samples_.bad; }
  Checksums checksums() const override {  // of all samples: cheap compared to reading them
    return {checksum_of(samples_.inputs), checksum_of(samples_.targets)};
  }
  std::vector<int32_t> labels() const override {
    return labels_in(samples_.spec, samples_.targets);
  }
  TableColumns columns() const override { return samples_.columns; }

 private:
  const Samples samples_;
  const size_t input_bytes_;
  const size_t target_bytes_;
};

}  // namespace

void finalize(const BadRecordPolicy& policy, Samples& samples) {
  policy.check(samples.source);
  policy.check_not_empty(samples.source, samples.count);
  samples.bad = policy.found();
}

void interleave(std::vector<uint8_t>& images, size_t channels, size_t pixels) {
  if (channels == 1) return;
  std::vector<uint8_t> planes(channels * pixels);
  for (auto image = images.begin(); image != images.end();) {
    std::copy_n(image, planes.size(), planes.begin());
    for (size_t i = 0; i < pixels; ++i) {
      for (size_t c = 0; c < channels; ++c) *image++ = planes[c * pixels + i];
    }
  }
}

void keep_rows(std::vector<uint8_t>& rows, size_t bytes, const std::vector<bool>& keep) {
  uint8_t* to = rows.data();
  for (size_t row = 0; row < keep.size(); ++row) {
    if (!keep[row]) continue;
    const uint8_t* from = rows.data() + row * bytes;
    if (to != from) std::memcpy(to, from, bytes);
    to += bytes;
  }
  rows.resize(to - rows.data());
}

std::unique_ptr<Dataset> make_dataset(Samples samples) {
  return std::make_unique<MemoryDataset>(std::move(samples));
}

std::string describe(const SampleSpec& spec, int64_t count) {
  if (spec.input.dtype == DType::kI32 && !spec.has_token_labels()) {
    return fmt::format("{} samples of {} tokens in {} classes", count, spec.input.shape[0],
                       spec.classes);
  }
  if (spec.input.dtype == DType::kI32) {
    return fmt::format("{} samples of {} tokens with vocab_size {}", count, spec.input.shape[0],
                       spec.classes);
  }
  const std::string target = spec.classes > 0
                                 ? fmt::format("in {} classes", spec.classes)
                                 : fmt::format("with {} target(s)", spec.target.shape.elements());
  return fmt::format("{} samples of {} {} {}", count, name_of(spec.input.dtype),
                     spec.input.shape.to_string(), target);
}

std::string skipped_note(const BadRecords& bad) {
  return bad.count == 0 ? "" : fmt::format(", {} bad record(s) skipped", bad.count);
}

std::vector<uint8_t> label_bytes(std::span<const int32_t> labels) {
  std::vector<uint8_t> bytes(labels.size_bytes());
  if (!labels.empty()) std::memcpy(bytes.data(), labels.data(), bytes.size());
  return bytes;
}

std::vector<int32_t> labels_in(const SampleSpec& spec, std::span<const uint8_t> targets) {
  if (spec.classes < 1 || spec.target != label_spec()) return {};
  std::vector<int32_t> labels(targets.size() / sizeof(int32_t));
  if (!labels.empty()) std::memcpy(labels.data(), targets.data(), targets.size());
  return labels;
}

}  // namespace trireme::data
