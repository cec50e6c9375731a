#include <cmath>
#include <cstring>
#include <optional>

#include "data/transforms/fields.h"
#include "data/transforms/transforms.h"

namespace trireme::data {
namespace {

constexpr int kTries = 10;
constexpr float kMaxRatio = 1000;

void fill_with_noise(const ImageView& image, const Random& random) {
  uint64_t word = 0;
  for (int y = 0; y < image.height; ++y) {
    uint8_t* row = image.row(y);
    for (std::ptrdiff_t i = 0; i < image.row_bytes(); i += sizeof(Random4)) {
      const Random4 noise = random.four(word++);
      std::memcpy(row + i, noise.data(),
                  std::min<std::ptrdiff_t>(sizeof(noise), image.row_bytes() - i));
    }
  }
}

class RandomErasing final : public Transform {
 public:
  RandomErasing(const RandomErasingConfig& config, const std::string& path)
      : probability_(checked_probability(config.probability(), path + ".probability")),
        scale_(checked_range(config.min_scale(), config.max_scale(), 1, path, "scale")),
        ratio_(checked_range(config.min_ratio(), config.max_ratio(), kMaxRatio, path, "ratio")),
        noise_(config.noise()),
        fill_(checked_fill(config.fill(), path + ".fill")) {}

  bool random() const override { return probability_ > 0; }
  bool moves_objects() const override { return false; }
  bool in_place() const override { return true; }

  void apply(Canvas& canvas, Draws& draws) const override {
    if (!draws.chance(probability_)) return;
    const std::optional<Region> region = choose(canvas.size(), draws);
    if (!region) return;
    const ImageView erased = canvas.image().part(*region);
    if (noise_) {
      const uint64_t upper = draws.bits();
      fill_with_noise(erased, Random(upper << 32 | draws.bits(), RandomPurpose::kAugment));
      return;
    }
    for (int y = 0; y < erased.height; ++y) {
      std::memset(erased.row(y), fill_, erased.row_bytes());
    }
  }

 private:
  // Returns empty if no attempt fits in the image.
  std::optional<Region> choose(ImageSize size, Draws& draws) const {
    const float image_area = static_cast<float>(size.height) * static_cast<float>(size.width);
    for (int i = 0; i < kTries; ++i) {
      const float area = image_area * draws.uniform(scale_.min, scale_.max);
      const float ratio = std::exp(draws.uniform(std::log(ratio_.min), std::log(ratio_.max)));
      const int height = static_cast<int>(std::lround(std::sqrt(area * ratio)));
      const int width = static_cast<int>(std::lround(std::sqrt(area / ratio)));
      if (height >= size.height || width >= size.width) continue;
      const int top = draws.below(size.height - height + 1);
      return Region{top, draws.below(size.width - width + 1), height, width};
    }
    return {};
  }

  float probability_;
  Range scale_;
  Range ratio_;
  bool noise_;
  uint8_t fill_;
};

}  // namespace

std::unique_ptr<Transform> make_random_erasing(const RandomErasingConfig& config,
                                               const std::string& path) {
  return std::make_unique<RandomErasing>(config, path);
}

}  // namespace trireme::data
