#include "data/mix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "core/vectorized.h"
#include "data/data.pb.h"

namespace trireme::data {
namespace {

// The transform index for the draws of pairs. No sample has a transform with this index, see
// kMaxTransforms in pipeline.cc.
constexpr int kMixTransform = 255;
constexpr uint32_t kFullShare = 1 << 16;  // a share of 1 in fixed point

double open_uniform(Draws& draws) { return (draws.bits() + 0.5) * 0x1p-32; }  // in (0, 1)

double draw_normal(Draws& draws) {
  const double u = open_uniform(draws);
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * open_uniform(draws));
}

// Returns the logarithm, since variates for a small alpha underflow a double.
double draw_log_gamma(double alpha, Draws& draws) {
  if (alpha < 1) {
    const double log_u = std::log(open_uniform(draws));
    return draw_log_gamma(alpha + 1, draws) + log_u / alpha;
  }
  const double d = alpha - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = draw_normal(draws);
    const double v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    if (std::log(open_uniform(draws)) < x * x / 2 + d - d * v + d * std::log(v)) {
      return std::log(d) + std::log(v);
    }
  }
}

TRIREME_VECTORIZED void mix_bytes(uint8_t* a, uint8_t* b, size_t count, uint32_t share) {
  const uint32_t rest = kFullShare - share;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t x = a[i];
    const uint32_t y = b[i];
    a[i] = static_cast<uint8_t>((share * x + rest * y + kFullShare / 2) / kFullShare);
    b[i] = static_cast<uint8_t>((share * y + rest * x + kFullShare / 2) / kFullShare);
  }
}

TRIREME_VECTORIZED void mix_floats(float* a, float* b, size_t count, float share) {
  const float rest = 1 - share;
  for (size_t i = 0; i < count; ++i) {
    const float x = a[i];
    const float y = b[i];
    a[i] = share * x + rest * y;
    b[i] = share * y + rest * x;
  }
}

struct Cut {
  int64_t top, left, height, width;
};

// Draws a box with the image's aspect ratio and the fraction `part` of its area, centered on a
// random pixel and clipped to the image.
Cut draw_cut(double part, int64_t height, int64_t width, Draws& draws) {
  const double side = std::sqrt(part);
  const auto along = [&](int64_t extent) {
    const auto half = static_cast<int64_t>(static_cast<double>(extent) * side) / 2;
    const int64_t center = draws.below(static_cast<int>(extent));
    return std::pair(std::max<int64_t>(center - half, 0), std::min(center + half, extent));
  };
  const auto [top, bottom] = along(height);
  const auto [left, right] = along(width);
  return {top, left, bottom - top, right - left};
}

void check_alpha(float alpha, const std::string& field) {
  if (std::isfinite(alpha) && alpha >= 0) return;
  throw ConfigError("data.mix." + field, fmt::format("{} is not a number >= 0", alpha));
}

void check(const MixConfig& config, const SampleSpec& spec) {
  check_alpha(config.mixup_alpha(), "mixup_alpha");
  check_alpha(config.cutmix_alpha(), "cutmix_alpha");
  if (config.mixup_alpha() == 0 && config.cutmix_alpha() == 0) {
    throw ConfigError("data.mix",
                      "has no effect: set mixup_alpha or cutmix_alpha to a number above 0");
  }
  if (!(config.probability() >= 0 && config.probability() <= 1)) {
    throw ConfigError("data.mix.probability",
                      fmt::format("{} is not in [0, 1]", config.probability()));
  }
  if (spec.classes < 1) {
    throw ConfigError("data.mix",
                      "needs samples with class labels, whose probabilities can be mixed");
  }
  if (spec.input.dtype != DType::kU8 && spec.input.dtype != DType::kF32) {
    throw ConfigError("data.mix", "needs inputs of u8 or f32; they are " + spec.input.to_string());
  }
  if (config.cutmix_alpha() > 0 && spec.input.shape.rank() != 3) {
    throw ConfigError("data.mix.cutmix_alpha",
                      "needs images [C, H, W]; samples are " + spec.input.shape.to_string());
  }
}

}  // namespace

double draw_beta(double alpha, Draws& draws) {
  const double log_a = draw_log_gamma(alpha, draws);
  const double log_b = draw_log_gamma(alpha, draws);
  return 1 / (1 + std::exp(log_b - log_a));
}

Mix::Mix(const MixConfig& config, uint64_t seed, const SampleSpec& spec)
    : mixup_alpha_(config.mixup_alpha()),
      cutmix_alpha_(config.cutmix_alpha()),
      probability_(config.probability()),
      seed_(seed),
      spec_(spec) {
  check(config, spec);
  const TensorSpec probabilities{DType::kF32, Shape{spec.classes}, Layout::row_major()};
  if (spec.target != probabilities) {
    throw Error("mix: targets are " + spec.target.to_string() + ", not probabilities of classes");
  }
}

void Mix::operator()(int64_t epoch, int64_t position, const Row& first, const Row& second) const {
  Draws draws(seed_, epoch, position, kMixTransform);
  if (!draws.chance(probability_)) return;
  const float share =
      chooses_cutmix(draws) ? cutmix(draws, first, second) : mixup(draws, first, second);
  mix_floats(reinterpret_cast<float*>(first.target), reinterpret_cast<float*>(second.target),
             spec_.classes, share);
}

bool Mix::chooses_cutmix(Draws& draws) const {
  if (mixup_alpha_ == 0) return true;
  return cutmix_alpha_ > 0 && draws.chance(0.5F);
}

// mixup() and cutmix() return the share of itself that each row retains.
float Mix::mixup(Draws& draws, const Row& first, const Row& second) const {
  const auto share =
      static_cast<uint32_t>(std::lround(draw_beta(mixup_alpha_, draws) * kFullShare));
  const float exact = static_cast<float>(share) / kFullShare;
  const size_t elements = spec_.input.shape.elements();
  if (spec_.input.dtype == DType::kU8) {
    mix_bytes(reinterpret_cast<uint8_t*>(first.input), reinterpret_cast<uint8_t*>(second.input),
              elements, share);
  } else {
    mix_floats(reinterpret_cast<float*>(first.input), reinterpret_cast<float*>(second.input),
               elements, exact);
  }
  return exact;
}

float Mix::cutmix(Draws& draws, const Row& first, const Row& second) const {
  const Shape& shape = spec_.input.shape;
  const int64_t height = shape[1];
  const int64_t width = shape[2];
  const Cut cut = draw_cut(1 - draw_beta(cutmix_alpha_, draws), height, width, draws);
  // A channels-last image is one plane of pixels with all channels.
  const bool interleaved = spec_.input.layout.kind() == Layout::Kind::kChannelsLast;
  const int64_t planes = interleaved ? 1 : shape[0];
  const auto pixel =
      static_cast<int64_t>(size_of(spec_.input.dtype)) * (interleaved ? shape[0] : 1);
  for (int64_t plane = 0; plane < planes; ++plane) {
    for (int64_t y = cut.top; y < cut.top + cut.height; ++y) {
      const int64_t at = ((plane * height + y) * width + cut.left) * pixel;
      std::swap_ranges(first.input + at, first.input + at + cut.width * pixel, second.input + at);
    }
  }
  return 1 - static_cast<float>(cut.height * cut.width) / static_cast<float>(height * width);
}

}  // namespace trireme::data
