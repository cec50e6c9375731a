#include "data/pack/source.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "core/error.h"
#include "data/formats/formats.h"
#include "data/formats/npy_array.h"
#include "data/records.h"

namespace trireme::data {
namespace {

std::string_view extension_of(std::span<const uint8_t> image) {
  const auto begins = [&](std::initializer_list<uint8_t> with) {
    return image.size() >= with.size() && std::equal(with.begin(), with.end(), image.begin());
  };
  if (begins({0xff, 0xd8, 0xff})) return "jpg";
  if (begins({0x89, 'P', 'N', 'G'})) return "png";
  return begins({0x93, 'N', 'U', 'M', 'P', 'Y'}) ? "npy" : "";
}

// Returns the size after scaling the shorter side to `side`.
ImageSize scaled_size(ImageSize size, int side) {
  const int shorter = std::min(size.height, size.width);
  const auto scaled = [&](int extent) {
    return static_cast<int>(int64_t{extent} * side / shorter);
  };
  return {scaled(size.height), scaled(size.width)};
}

class FileSource final : public PackSource {
 public:
  FileSource(std::unique_ptr<Records> records, const PackImages& images)
      : records_(std::move(records)), images_(images) {}

  int64_t size() const override { return records_->size(); }
  int classes() const override { return records_->classes(); }
  std::string description() const override { return records_->source(); }
  std::vector<std::string> class_names() const override { return records_->class_names(); }
  BadRecords bad_records() const override { return records_->bad_records(); }
  uint64_t identity() const override { return records_->identity(); }

  PackedSample read(int64_t index, PackTools& tools) const override {
    PackedSample sample;
    records_->read(index, sample.bytes);
    sample.label = records_->label(index);
    sample.extension = extension_of(sample.bytes);
    if (sample.extension.empty()) {
      throw DataError(records_->where(index), "is not a JPEG, PNG or .npy file");
    }
    if (images_.resize == 0 || sample.extension == "npy") return sample;
    try {
      resize(sample, tools);
    } catch (const ImageError& error) {
      throw DataError(records_->where(index), error.what());
    }
    return sample;
  }

 private:
  void resize(PackedSample& sample, PackTools& tools) const {
    const ImageSize from = tools.decoder.open(sample.bytes).size;
    if (std::min(from.height, from.width) <= images_.resize) return;
    DecodeRequest request;
    request.region = {0, 0, from.height, from.width};
    const DecodePlan plan = tools.decoder.plan(request);
    const ImageView decoded = tools.decoded.reshape(plan.size, request.channels);
    tools.decoder.decode(decoded);
    const ImageView to = tools.resized.reshape(scaled_size(from, images_.resize), request.channels);
    tools.resizer.resize(decoded,
                         {0, 0, static_cast<double>(from.height), static_cast<double>(from.width)},
                         to, Filter::kBilinear);
    sample.bytes = encode_jpeg(to, images_.quality);
    sample.extension = "jpg";
  }

  const std::unique_ptr<Records> records_;
  const PackImages images_;
};

bool is_image(const SampleSpec& spec) {
  const Shape& shape = spec.input.shape;
  return spec.input.dtype == DType::kU8 && shape.rank() == 3 && (shape[0] == 1 || shape[0] == 3) &&
         (spec.input.layout == Layout::channels_last() || shape[0] == 1);
}

class ArraySource final : public PackSource {
 public:
  ArraySource(std::unique_ptr<Dataset> samples, uint64_t settings)
      : samples_(std::move(samples)), settings_(settings) {}

  int64_t size() const override { return samples_->size(); }
  int classes() const override { return samples_->spec().classes; }
  std::string description() const override { return samples_->description(); }
  std::vector<std::string> class_names() const override { return samples_->class_names(); }
  BadRecords bad_records() const override { return samples_->bad_records(); }

  PackedSample read(int64_t index, PackTools&) const override {
    const SampleSpec& spec = samples_->spec();
    PackedSample sample;
    std::vector<std::byte> input(spec.input.bytes());
    samples_->read({index}, input.data(), reinterpret_cast<std::byte*>(&sample.label));
    auto* bytes = reinterpret_cast<uint8_t*>(input.data());
    const Shape& shape = spec.input.shape;
    if (is_image(spec)) {
      const ImageSize size{static_cast<int>(shape[1]), static_cast<int>(shape[2])};
      sample.bytes = encode_png(view_of(bytes, size, static_cast<int>(shape[0])));
      sample.extension = "png";
      return sample;
    }
    if (spec.input.dtype == DType::kF32) scale(input, spec.scale);
    sample.bytes =
        encode_npy(spec.input.dtype, extents_as_stored(spec.input), {bytes, input.size()});
    sample.extension = "npy";
    return sample;
  }

  uint64_t identity() const override {
    constexpr int64_t kRead = 64;
    PackTools tools;
    uint64_t hash = settings_;
    for (int64_t i = 0; i < std::min(kRead, size()); ++i) {
      const PackedSample sample = read(i * size() / std::min(kRead, size()), tools);
      hash = XXH3_64bits_withSeed(sample.bytes.data(), sample.bytes.size(),
                                  hash + static_cast<uint64_t>(sample.label));
    }
    return hash;
  }

 private:
  static void scale(std::vector<std::byte>& input, float factor) {
    for (size_t at = 0; at < input.size(); at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, input.data() + at, sizeof value);
      value *= factor;
      std::memcpy(input.data() + at, &value, sizeof value);
    }
  }
  static std::vector<int64_t> extents_as_stored(const TensorSpec& input) {
    std::vector<int64_t> extents(input.shape.begin(), input.shape.end());
    if (input.layout == Layout::channels_last()) {
      std::rotate(extents.begin(), extents.begin() + 1, extents.end());
    }
    return extents;
  }

  const std::unique_ptr<Dataset> samples_;
  const uint64_t settings_;
};

}  // namespace

void check_part_to_pack(const DataConfig& config, Part part) {
  if (!config.has_holdout() || part == Part::kTraining) return;
  throw ConfigError("data.holdout",
                    "selects evaluation samples when the data is opened, even if it is packed; "
                    "pack the training part instead");
}

std::unique_ptr<PackSource> open_pack_source(const DataConfig& config, Part part,
                                             const PackImages& images, const OpenOptions& options) {
  check_part_to_pack(config, part);
  if (config.has_image_folder()) {
    return std::make_unique<FileSource>(open_image_folder(config, part, options), images);
  }
  if (config.has_webdataset()) {
    return std::make_unique<FileSource>(open_webdataset(config, part, options), images);
  }
  DataConfig files = config;
  files.clear_holdout();
  files.clear_normalize();
  files.clear_transform();
  files.clear_eval_transform();
  files.clear_mix();
  files.clear_cache();
  auto samples = open_dataset(files, part, options);
  if (samples->spec().target != label_spec()) {
    throw ConfigError("data", fmt::format("{}: only samples with class labels can be packed",
                                          samples->description()));
  }
  if (samples->spec().vocab_size > 0) {
    throw ConfigError("data", fmt::format("{}: texts with labels cannot be packed; they are small, "
                                          "and read from their tables and folders",
                                          samples->description()));
  }
  if (images.resize > 0) {
    throw ConfigError("--resize", "is only for images in files: image_folder and webdataset");
  }
  const std::string text = fmt::format("{} {}", files.ShortDebugString(), samples->size());
  return std::make_unique<ArraySource>(std::move(samples), XXH3_64bits(text.data(), text.size()));
}

}  // namespace trireme::data
