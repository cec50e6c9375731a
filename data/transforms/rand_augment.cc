// RandAugment and TrivialAugment choose from the same operations with other strengths. Both are
// torchvision's in everything but the random numbers.
#include <cmath>

#include "data/images/affine.h"
#include "data/images/color.h"
#include "data/transforms/fields.h"
#include "data/transforms/transforms.h"

namespace trireme::data {
namespace {

enum class Operation {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
};
constexpr int kOperations = 14;
constexpr int kSteps = 31;  // of strength, of which the first does nothing

// What the strongest step does.
struct Strengths {
  float shear;          // pixels a pixel
  double translate;     // of the image's extent
  double translate_by;  // pixels, on top of it
  float rotate;         // degrees
  float enhance;        // added to a factor of 1, or taken from it
  float posterize;      // bits
};
constexpr Strengths kRandAugment = {.shear = 0.3F,
                                    .translate = 150.0 / 331.0,
                                    .translate_by = 0,
                                    .rotate = 30,
                                    .enhance = 0.9F,
                                    .posterize = 4};
constexpr Strengths kTrivialAugment = {.shear = 0.99F,
                                       .translate = 0,
                                       .translate_by = 32,
                                       .rotate = 135,
                                       .enhance = 0.99F,
                                       .posterize = 6};

// The step-th of kSteps numbers from 0 to `most`, as torch.linspace rounds them.
float linear_step(float most, int step) {
  const float between = most / (kSteps - 1);
  return step < kSteps / 2 ? between * static_cast<float>(step)
                           : std::fma(-between, static_cast<float>(kSteps - 1 - step), most);
}

class Augmenter {
 public:
  Augmenter(const Strengths& strengths, uint8_t fill) : most_(strengths), fill_(fill) {}

  // `step` in [0, kSteps); `sign`, 1 or -1, for operations that go both ways.
  void apply(Operation operation, int step, int sign, Canvas& canvas) const {
    const auto amount = [&](float most) { return linear_step(most, step); };
    const auto strength = [&](float most) { return static_cast<float>(sign) * amount(most); };
    const ImageSize size = canvas.size();
    switch (operation) {
      case Operation::kIdentity:
        return;
      case Operation::kShearX:
        return move(shear_map(strength(most_.shear), 0), canvas);
      case Operation::kShearY:
        return move(shear_map(0, strength(most_.shear)), canvas);
      case Operation::kTranslateX:
        return move(translation_map(std::trunc(strength(most_translation(size.width))), 0), canvas);
      case Operation::kTranslateY:
        return move(translation_map(0, std::trunc(strength(most_translation(size.height)))),
                    canvas);
      case Operation::kRotate:
        return move(rotation_map(strength(most_.rotate), size), canvas);
      case Operation::kBrightness:
        return adjust_brightness(canvas.image(), 1 + strength(most_.enhance));
      case Operation::kColor:
        return adjust_saturation(canvas.image(), 1 + strength(most_.enhance));
      case Operation::kContrast:
        return adjust_contrast(canvas.image(), 1 + strength(most_.enhance));
      case Operation::kSharpness:
        return adjust_sharpness(canvas.image(), 1 + strength(most_.enhance));
      case Operation::kPosterize:
        return posterize(canvas.image(),
                         8 - static_cast<int>(std::lround(amount(most_.posterize))));
      case Operation::kSolarize:
        return solarize(canvas.image(), 255 - amount(255));
      case Operation::kAutoContrast:
        return autocontrast(canvas.image());
      case Operation::kEqualize:
        return equalize(canvas.image());
    }
  }

 private:
  float most_translation(int extent) const {
    return static_cast<float>(most_.translate * extent + most_.translate_by);
  }

  void move(const AffineMap& map, Canvas& canvas) const {
    const Canvas::Next next = canvas.make(canvas.size());
    warp(canvas.source(), map, fill_, next.image);
    canvas.take(next);
  }

  Strengths most_;
  uint8_t fill_;
};

class RandAugment final : public Transform {
 public:
  RandAugment(const RandAugmentConfig& config, const std::string& path)
      : augmenter_(kRandAugment, checked_fill(config.fill(), path + ".fill")),
        operations_(checked_integer(config.operations(), 0, kOperations, path + ".operations")),
        magnitude_(checked_integer(config.magnitude(), 0, kSteps - 1, path + ".magnitude")) {}

  bool random() const override { return operations_ > 0; }
  void apply(Canvas& canvas, Draws& draws) const override {
    for (int i = 0; i < operations_; ++i) {
      const auto operation = static_cast<Operation>(draws.below(kOperations));
      const int sign = draws.chance(0.5F) ? -1 : 1;
      augmenter_.apply(operation, magnitude_, sign, canvas);
    }
  }

 private:
  Augmenter augmenter_;
  int operations_;
  int magnitude_;
};

class TrivialAugment final : public Transform {
 public:
  TrivialAugment(const TrivialAugmentConfig& config, const std::string& path)
      : augmenter_(kTrivialAugment, checked_fill(config.fill(), path + ".fill")) {}

  bool random() const override { return true; }
  void apply(Canvas& canvas, Draws& draws) const override {
    const auto operation = static_cast<Operation>(draws.below(kOperations));
    const int step = draws.below(kSteps);
    const int sign = draws.chance(0.5F) ? -1 : 1;
    augmenter_.apply(operation, step, sign, canvas);
  }

 private:
  Augmenter augmenter_;
};

}  // namespace

std::unique_ptr<Transform> make_rand_augment(const RandAugmentConfig& config,
                                             const std::string& path) {
  return std::make_unique<RandAugment>(config, path);
}

std::unique_ptr<Transform> make_trivial_augment(const TrivialAugmentConfig& config,
                                                const std::string& path) {
  return std::make_unique<TrivialAugment>(config, path);
}

}  // namespace trireme::data
