#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "data/formats/formats.h"

namespace trireme::data {
namespace {

// Maximum height and width of patterns in cells. Cells are larger than a pixel, so that
// convolutions can recognize them.
constexpr int64_t kCells = 8;
// The first index of evaluation samples in the random streams, far from those of training samples.
constexpr uint64_t kEvaluationBegin = uint64_t{1} << 40;
constexpr uint64_t kPatterns = uint64_t{1} << 63;  // flag of the random streams of class patterns
constexpr uint32_t kOne = 256;                     // fixed-point 1

std::array<uint8_t, 16> bytes_of(const Random4& r) {
  std::array<uint8_t, 16> bytes{};
  for (size_t i = 0; i < 16; ++i) bytes[i] = static_cast<uint8_t>(r[i / 4] >> (8 * (i % 4)));
  return bytes;
}

class Synthetic final : public Dataset {
 public:
  Synthetic(const SyntheticConfig& config, Part part, SampleSpec spec)
      : spec_(std::move(spec)),
        seed_(config.seed()),
        size_(part == Part::kTraining ? config.count() : config.eval_count()),
        begin_(part == Part::kTraining ? 0 : kEvaluationBegin),
        noise_(static_cast<uint32_t>(std::lround(config.noise() * static_cast<float>(kOne)))) {
    lay_out_cells();
    patterns_.resize(spec_.classes * cells_);
    for (size_t label = 0; label < static_cast<size_t>(spec_.classes); ++label) {
      const Random random(seed_, RandomPurpose::kSynthetic, kPatterns | label);
      for (size_t cell = 0; cell < cells_; ++cell) {
        patterns_[label * cells_ + cell] = static_cast<uint8_t>(random.bits(cell) >> 24);
      }
    }
  }

  const SampleSpec& spec() const override { return spec_; }
  int64_t size() const override { return size_; }

  void read(SampleId id, std::byte* input, std::byte* target) const override {
    const int64_t index = id.index;
    if (index < 0 || index >= size_) {
      throw DataError("synthetic data", fmt::format("sample {} is out of range; the last one is {}",
                                                    index, size_ - 1));
    }
    const int32_t label = label_of(index);
    std::memcpy(target, &label, sizeof label);
    const uint8_t* pattern = patterns_.data() + label * cells_;
    const Random random(seed_, RandomPurpose::kSynthetic, begin_ + static_cast<uint64_t>(index));
    for (size_t begin = 0; begin < cell_of_.size(); begin += 16) {
      const std::array<uint8_t, 16> noise = bytes_of(random.four(begin / 16));
      const size_t end = std::min(begin + 16, cell_of_.size());
      for (size_t i = begin; i < end; ++i) {
        const uint32_t mixed = pattern[cell_of_[i]] * (kOne - noise_) + noise[i - begin] * noise_;
        input[place_of_[i]] = static_cast<std::byte>(mixed / kOne);
      }
    }
  }

  std::string description() const override { return "synthetic: " + describe(spec_, size_); }
  std::string where(int64_t) const override { return "synthetic"; }
  bool in_memory() const override { return true; }
  std::vector<int32_t> labels() const override {
    std::vector<int32_t> labels(static_cast<size_t>(size_));
    for (size_t i = 0; i < labels.size(); ++i) labels[i] = label_of(static_cast<int64_t>(i));
    return labels;
  }

 private:
  int32_t label_of(int64_t index) const { return static_cast<int32_t>(index % spec_.classes); }

  // For each element in row-major order, computes the cell of the pattern that it shows and its
  // position in the channels-last image.
  void lay_out_cells() {
    const Shape& shape = spec_.input.shape;
    cell_of_.resize(shape.elements());
    place_of_.resize(cell_of_.size());
    if (shape.rank() == 1) {
      cells_ = cell_of_.size();
      std::iota(cell_of_.begin(), cell_of_.end(), 0U);
      place_of_ = cell_of_;
      return;
    }
    const int64_t rows = std::min(kCells, shape[1]);
    const int64_t columns = std::min(kCells, shape[2]);
    cells_ = shape[0] * rows * columns;
    size_t i = 0;
    for (int64_t c = 0; c < shape[0]; ++c) {
      for (int64_t y = 0; y < shape[1]; ++y) {
        for (int64_t x = 0; x < shape[2]; ++x) {
          const int64_t row = c * rows + y * rows / shape[1];
          cell_of_[i] = static_cast<uint32_t>(row * columns + x * columns / shape[2]);
          place_of_[i++] = static_cast<uint32_t>((y * shape[2] + x) * shape[0] + c);
        }
      }
    }
  }

  SampleSpec spec_;
  uint64_t seed_;
  int64_t size_;
  uint64_t begin_;
  uint32_t noise_;  // share of noise, in units of 1 / kOne
  size_t cells_ = 0;
  std::vector<uint32_t> cell_of_;
  std::vector<uint32_t> place_of_;
  std::vector<uint8_t> patterns_;  // [classes, cells]
};

void check_count(int64_t count, const std::string& path) {
  if (count < 1 || count > int64_t{1} << 40) {
    throw ConfigError(path, fmt::format("{} is not in [1, 2^40]", count));
  }
}

}  // namespace

SampleSpec synthetic_spec(const SyntheticConfig& config) {
  check_count(config.count(), "data.synthetic.count");
  check_count(config.eval_count(), "data.synthetic.eval_count");
  if (!(config.noise() >= 0 && config.noise() <= 1)) {
    throw ConfigError("data.synthetic.noise", fmt::format("{} is not in [0, 1]", config.noise()));
  }
  const Shape shape = config.shape().empty()
                          ? Shape{3, 32, 32}
                          : checked_shape(config.shape(), "data.synthetic.shape");
  SampleSpec spec;
  spec.input = {DType::kU8, shape,
                shape.rank() == 3 ? Layout::channels_last() : Layout::row_major()};
  spec.target = label_spec();
  spec.classes = checked_classes(config.classes(), "data.synthetic.classes");
  spec.scale = 1.0F / 255;
  return spec;
}

std::unique_ptr<Dataset> make_synthetic(const SyntheticConfig& config, Part part, SampleSpec spec) {
  return std::make_unique<Synthetic>(config, part, std::move(spec));
}

}  // namespace trireme::data
