#include "data/images/color.h"

#include <algorithm>
#include <array>
#include <utility>

#include "data/transforms/fields.h"
#include "data/transforms/transforms.h"

namespace trireme::data {
namespace {

// As in torchvision, an adjustment with strength 0 is skipped, so that pixels stay bit-identical.
class ColorJitter final : public Transform {
 public:
  ColorJitter(const ColorJitterConfig& config, const std::string& path)
      : strengths_{checked_number(config.brightness(), 0, kMaxStrength, path + ".brightness"),
                   checked_number(config.contrast(), 0, kMaxStrength, path + ".contrast"),
                   checked_number(config.saturation(), 0, kMaxStrength, path + ".saturation"),
                   checked_number(config.hue(), 0, 0.5F, path + ".hue")} {}

  bool random() const override {
    return std::ranges::any_of(strengths_, [](float strength) { return strength > 0; });
  }
  bool moves_objects() const override { return false; }
  bool in_place() const override { return true; }

  void apply(Canvas& canvas, Draws& draws) const override {
    std::array<size_t, 4> order = {kBrightness, kContrast, kSaturation, kHue};
    for (int i = 3; i > 0; --i) {
      std::swap(order[i], order[draws.below(i + 1)]);
    }
    std::array<float, 4> amounts{};
    for (size_t i = 0; i < 4; ++i) {
      const float low = i == kHue ? -strengths_[i] : std::max(0.0F, 1 - strengths_[i]);
      const float high = i == kHue ? strengths_[i] : 1 + strengths_[i];
      amounts[i] = draws.uniform(low, high);
    }
    for (const size_t kind : order) {
      if (strengths_[kind] > 0) adjust(canvas.image(), kind, amounts[kind]);
    }
  }

 private:
  static constexpr float kMaxStrength = 255;
  enum : size_t { kBrightness, kContrast, kSaturation, kHue };

  static void adjust(const ImageView& image, size_t kind, float amount) {
    if (kind == kBrightness) adjust_brightness(image, amount);
    if (kind == kContrast) adjust_contrast(image, amount);
    if (kind == kSaturation) adjust_saturation(image, amount);
    if (kind == kHue) adjust_hue(image, amount);
  }

  std::array<float, 4> strengths_;
};

class Grayscale final : public Transform {
 public:
  Grayscale(const ProbabilityConfig& config, const std::string& path)
      : probability_(checked_probability(config.probability(), path + ".probability")) {}

  bool random() const override { return probability_ > 0 && probability_ < 1; }
  bool moves_objects() const override { return false; }
  bool in_place() const override { return true; }
  void apply(Canvas& canvas, Draws& draws) const override {
    if (draws.chance(probability_)) make_gray(canvas.image());
  }

 private:
  float probability_;
};

}  // namespace

std::unique_ptr<Transform> make_color_jitter(const ColorJitterConfig& config,
                                             const std::string& path) {
  return std::make_unique<ColorJitter>(config, path);
}

std::unique_ptr<Transform> make_grayscale(const ProbabilityConfig& config,
                                          const std::string& path) {
  return std::make_unique<Grayscale>(config, path);
}

}  // namespace trireme::data
