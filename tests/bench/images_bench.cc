// Measures the time per image on one core: random resized crops of 500 x 375 photographs to 224 x
// 224, and color operations on the result.
#include <benchmark/benchmark.h>

#include <cmath>
#include <functional>
#include <vector>

#include "core/random.h"
#include "data/images/affine.h"
#include "data/images/color.h"
#include "data/images/resize.h"

namespace trireme {
namespace {

constexpr data::ImageSize kPhotograph = {375, 500};
constexpr data::ImageSize kInput = {224, 224};

data::Image noise(data::ImageSize size) {
  data::Image image;
  const data::ImageView view = image.reshape(size, 3);
  const Random random(1, RandomPurpose::kSynthetic);
  for (std::ptrdiff_t i = 0; i < view.row_bytes() * view.height; ++i) {
    view.pixels[i] = static_cast<uint8_t>(random.bits(static_cast<uint64_t>(i)));
  }
  return image;
}

// As random_resized_crop draws them: 8% to 100% of the area, ratios from 3/4 to 4/3.
std::vector<data::Box> crops() {
  const Random random(2, RandomPurpose::kAugment);
  std::vector<data::Box> boxes;
  for (uint64_t i = 0; boxes.size() < 256; i += 4) {
    const double area =
        (0.08 + 0.92 * random.uniform_at(i)) * kPhotograph.height * kPhotograph.width;
    const double ratio = std::exp(std::log(4.0 / 3) * (2 * random.uniform_at(i + 1) - 1));
    const double width = std::round(std::sqrt(area * ratio));
    const double height = std::round(std::sqrt(area / ratio));
    if (width > kPhotograph.width || height > kPhotograph.height) continue;
    boxes.push_back({std::floor(random.uniform_at(i + 2) * (kPhotograph.height - height + 1)),
                     std::floor(random.uniform_at(i + 3) * (kPhotograph.width - width + 1)), height,
                     width});
  }
  return boxes;
}

void resize(benchmark::State& state, data::Filter filter) {
  const data::Image from = noise(kPhotograph);
  data::Image to;
  to.reshape(kInput, 3);
  const std::vector<data::Box> boxes = crops();
  data::Resizer resizer;
  size_t i = 0;
  for (auto _ : state) {
    resizer.resize(from.view(), boxes[i++ % boxes.size()], to.view(), filter);
    benchmark::ClobberMemory();
  }
}

void change(benchmark::State& state, const std::function<void(const data::ImageView&)>& work) {
  const data::Image original = noise(kInput);
  data::Image image;
  image.reshape(kInput, 3);
  for (auto _ : state) {
    state.PauseTiming();
    data::copy_pixels(original.view(), image.view());
    state.ResumeTiming();
    work(image.view());
    benchmark::ClobberMemory();
  }
}

void rotate(benchmark::State& state) {
  const data::Image from = noise(kInput);
  data::Image to;
  to.reshape(kInput, 3);
  for (auto _ : state) {
    data::warp(from.view(), data::rotation_map(20, kInput), 0, to.view());
    benchmark::ClobberMemory();
  }
}

BENCHMARK_CAPTURE(resize, bilinear, data::Filter::kBilinear)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(resize, bicubic, data::Filter::kBicubic)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(resize, nearest, data::Filter::kNearest)->Unit(benchmark::kMicrosecond);
BENCHMARK(rotate)->Unit(benchmark::kMicrosecond);

void add(const char* name, const std::function<void(const data::ImageView&)>& work) {
  benchmark::RegisterBenchmark(name, [work](benchmark::State& state) {
    change(state, work);
  })->Unit(benchmark::kMicrosecond);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  using namespace trireme;
  add("brightness",
      [](const trireme::data::ImageView& image) { trireme::data::adjust_brightness(image, 1.3F); });
  add("contrast",
      [](const trireme::data::ImageView& image) { trireme::data::adjust_contrast(image, 1.3F); });
  add("saturation",
      [](const trireme::data::ImageView& image) { trireme::data::adjust_saturation(image, 1.3F); });
  add("hue", [](const trireme::data::ImageView& image) { trireme::data::adjust_hue(image, 0.1F); });
  add("sharpness",
      [](const trireme::data::ImageView& image) { trireme::data::adjust_sharpness(image, 1.3F); });
  add("equalize", trireme::data::equalize);
  add("autocontrast", trireme::data::autocontrast);
  add("gray", trireme::data::make_gray);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
