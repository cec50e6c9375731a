// RandAugment and TrivialAugment choose from the same operations with different strengths. Both
// match torchvision except for the random numbers.
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
constexpr int kSteps = 31;  // magnitudes; the first has no effect

// Strengths at the highest magnitude.
struct Strengths {
  float shear;          // pixels per pixel
  double translate;     // fraction of the image's extent
  double translate_by;  // additional pixels
  float rotate;         // degrees
  float enhance;        // added to or subtracted from a factor of 1
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

// Returns the step-th of kSteps numbers from 0 to `max`, rounded as by torch.linspace.
float linear_step(float max, int step) {
  const float between = max / (kSteps - 1);
  return step < kSteps / 2 ? between * static_cast<float>(step)
                           : std::fma(-between, static_cast<float>(kSteps - 1 - step), max);
}

class Augmenter {
 public:
  Augmenter(const Strengths& strengths, uint8_t fill) : max_(strengths), fill_(fill) {}

  // `step` is in [0, kSteps). `sign` is 1 or -1, used by operations that have a direction.
  void apply(Operation operation, int step, int sign, Canvas& canvas) const {
    const auto amount = [&](float max) { return linear_step(max, step); };
    const auto strength = [&](float max) { return static_cast<float>(sign) * amount(max); };
    const ImageSize size = canvas.size();
    switch (operation) {
      case Operation::kIdentity:
        return;
      case Operation::kShearX:
        return move(shear_map(strength(max_.shear), 0), canvas);
      case Operation::kShearY:
        return move(shear_map(0, strength(max_.shear)), canvas);
      case Operation::kTranslateX:
        return move(translation_map(std::trunc(strength(max_translation(size.width))), 0), canvas);
      case Operation::kTranslateY:
        return move(translation_map(0, std::trunc(strength(max_translation(size.height)))), canvas);
      case Operation::kRotate:
        return move(rotation_map(strength(max_.rotate), size), canvas);
      case Operation::kBrightness:
        return adjust_brightness(canvas.image(), 1 + strength(max_.enhance));
      case Operation::kColor:
        return adjust_saturation(canvas.image(), 1 + strength(max_.enhance));
      case Operation::kContrast:
        return adjust_contrast(canvas.image(), 1 + strength(max_.enhance));
      case Operation::kSharpness:
        return adjust_sharpness(canvas.image(), 1 + strength(max_.enhance));
      case Operation::kPosterize:
        return posterize(canvas.image(), 8 - static_cast<int>(std::lround(amount(max_.posterize))));
      case Operation::kSolarize:
        return solarize(canvas.image(), 255 - amount(255));
      case Operation::kAutoContrast:
        return autocontrast(canvas.image());
      case Operation::kEqualize:
        return equalize(canvas.image());
    }
  }

 private:
  float max_translation(int extent) const {
    return static_cast<float>(max_.translate * extent + max_.translate_by);
  }

  void move(const AffineMap& map, Canvas& canvas) const {
    const Canvas::Target target = canvas.allocate(canvas.size());
    warp(canvas.source(), map, fill_, target.image);
    canvas.commit(target);
  }

  Strengths max_;
  uint8_t fill_;
};

class RandAugment final : public Transform {
 public:
  RandAugment(const RandAugmentConfig& config, const std::string& path)
      : augmenter_(kRandAugment, checked_fill(config.fill(), path + ".fill")),
        operations_(checked_integer(config.operations(), 0, kOperations, path + ".operations")),
        magnitude_(checked_integer(config.magnitude(), 0, kSteps - 1, path + ".magnitude")) {}

  bool random() const override { return operations_ > 0; }
  bool moves_objects() const override { return operations_ > 0; }
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
  bool moves_objects() const override { return true; }
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
