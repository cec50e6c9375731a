// Images for tests, and records of images in memory.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/image_dataset.h"
#include "data/images/codec.h"
#include "data/records.h"
#include "tests/data/files.h"

namespace trireme::testing {

// An image that owns its memory and can be compared.
struct TestImage {
  data::ImageSize size;
  int channels = 3;
  std::vector<uint8_t> pixels;

  TestImage(data::ImageSize of, int with_channels)
      : size(of),
        channels(with_channels),
        pixels(static_cast<size_t>(of.height * of.width * with_channels)) {}
  explicit TestImage(const data::ImageView& view) : TestImage(view.size(), view.channels) {
    data::copy_pixels(view, this->view());
  }
  data::ImageView view() { return data::view_of(pixels.data(), size, channels); }
  uint8_t& at(int y, int x, int c) {
    return pixels[static_cast<size_t>((y * size.width + x) * channels + c)];
  }
  bool operator==(const TestImage&) const = default;
};

// Returns an image of noise.
inline TestImage noisy(data::ImageSize size, int channels, uint32_t seed = 1) {
  TestImage image(size, channels);
  for (uint8_t& pixel : image.pixels) {
    seed = seed * 1664525 + 1013904223;
    pixel = static_cast<uint8_t>(seed >> 24);
  }
  return image;
}

// Returns an image without sharp edges, like a photograph.
inline TestImage smooth(data::ImageSize size, int channels, double phase = 0) {
  TestImage image(size, channels);
  for (int y = 0; y < size.height; ++y) {
    for (int x = 0; x < size.width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const double wave = std::sin(0.05 * x + phase + c) * std::cos(0.07 * y - phase);
        image.at(y, x, c) = static_cast<uint8_t>(128 + 100 * wave);
      }
    }
  }
  return image;
}

// Images in memory. Counts how often they are read.
struct FakeRecords final : public data::Records {
  std::vector<std::vector<uint8_t>> files;
  uint64_t id = 1;
  mutable std::atomic<int64_t> reads = 0;

  int64_t size() const override { return std::ssize(files); }
  int classes() const override { return 7; }
  int32_t label(int64_t index) const override { return static_cast<int32_t>(index % 7); }
  void read(int64_t index, std::vector<uint8_t>& bytes) const override {
    ++reads;
    bytes = files[static_cast<size_t>(index)];
  }
  std::string where(int64_t index) const override { return "fake: " + std::to_string(index); }
  std::string source() const override { return "fakes"; }
  std::vector<std::string> class_names() const override { return {"a", "b"}; }
  uint64_t identity() const override { return id; }
  data::Checksums checksums() const override { return {.inputs = id, .targets = 0}; }
};

inline std::unique_ptr<FakeRecords> fakes(std::vector<TestImage> images) {
  auto records = std::make_unique<FakeRecords>();
  for (TestImage& image : images) records->files.push_back(data::encode_png(image.view()));
  return records;
}

inline DataConfig config_of(const std::string& text) {
  DataConfig config;
  if (!google::protobuf::TextFormat::ParseFromString(text, &config)) throw Error("bad: " + text);
  return config;
}

inline std::unique_ptr<data::Dataset> images(std::unique_ptr<data::Records> records,
                                             const std::string& text,
                                             data::Part part = data::Part::kTraining,
                                             uint64_t seed = 1) {
  return data::make_image_dataset(std::move(records), config_of(text), part,
                                  {.seed = seed, .progress = {}});
}

inline Sample sample_of(const data::Dataset& dataset, data::SampleId id) {
  Sample out{std::vector<std::byte>(dataset.spec().input.bytes()),
             std::vector<std::byte>(dataset.spec().target.bytes())};
  dataset.read(id, out.input.data(), out.target.data());
  return out;
}

inline TestImage image_of(const data::Dataset& dataset, data::SampleId id) {
  Sample s = sample_of(dataset, id);
  const Shape& shape = dataset.spec().input.shape;
  return TestImage(data::view_of(reinterpret_cast<uint8_t*>(s.input.data()),
                                 {static_cast<int>(shape[1]), static_cast<int>(shape[2])},
                                 static_cast<int>(shape[0])));
}

}  // namespace trireme::testing
