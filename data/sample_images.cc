#include "data/sample_images.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace trireme::data {
namespace {

template <class T, class Byte>
Image image_of(const T* values, const TensorSpec& spec, Byte to_byte) {
  const Shape& shape = spec.shape;
  const int64_t pixels = shape[1] * shape[2];
  const int channels = shape[0] == 3 ? 3 : 1;
  const bool last = spec.layout == Layout::channels_last();
  Image image;
  uint8_t* to =
      image.reshape({static_cast<int>(shape[1]), static_cast<int>(shape[2])}, channels).pixels;
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    for (int c = 0; c < channels; ++c) {
      *to++ = to_byte(values[last ? pixel * shape[0] + c : c * pixels + pixel]);
    }
  }
  return image;
}

template <class T, class Byte>
std::vector<Image> images_of(std::span<const T> values, const TensorSpec& spec, Byte to_byte) {
  std::vector<Image> images;
  const size_t elements = spec.shape.elements();
  for (size_t at = 0; at + elements <= values.size(); at += elements) {
    images.push_back(image_of(values.data() + at, spec, to_byte));
  }
  return images;
}

}  // namespace

bool are_images(const TensorSpec& spec) {
  return spec.shape.rank() == 3 && (spec.dtype == DType::kU8 || spec.dtype == DType::kF32);
}

std::vector<Image> images_of(const TensorSpec& spec, std::span<const std::byte> inputs) {
  if (spec.dtype == DType::kU8) {
    return images_of(std::span(reinterpret_cast<const uint8_t*>(inputs.data()), inputs.size()),
                     spec, [](uint8_t x) { return x; });
  }
  const std::span numbers(reinterpret_cast<const float*>(inputs.data()),
                          inputs.size() / sizeof(float));
  float low = std::numeric_limits<float>::infinity(), high = -low;
  for (const float x : numbers) {
    if (!std::isfinite(x)) continue;
    low = std::min(low, x);
    high = std::max(high, x);
  }
  const float scale = high > low ? 255 / (high - low) : 0;
  return images_of(numbers, spec, [&](float x) {
    return static_cast<uint8_t>(std::isfinite(x) ? (x - low) * scale + 0.5F : 0);
  });
}

std::vector<std::string> labels_of(const Dataset& dataset, std::span<const std::byte> targets) {
  const SampleSpec& spec = dataset.spec();
  if (spec.classes == 0 || spec.target.dtype != DType::kI32 || spec.target.shape.rank() != 0) {
    return {};
  }
  const std::vector<std::string> names = dataset.class_names();
  std::vector<std::string> labels;
  for (const int32_t label : std::span(reinterpret_cast<const int32_t*>(targets.data()),
                                       targets.size() / sizeof(int32_t))) {
    const size_t at = label;
    labels.push_back(at < names.size() ? names[at] : "class " + std::to_string(label));
  }
  return labels;
}

}  // namespace trireme::data
