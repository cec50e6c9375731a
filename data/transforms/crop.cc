#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/images/codec.h"
#include "data/transforms/border.h"
#include "data/transforms/fields.h"
#include "data/transforms/transforms.h"

namespace trireme::data {
namespace {

// To the nearest whole number, halves to the even one.
int rounded(double x) { return static_cast<int>(std::nearbyint(x)); }

// Goes on with a region, which may reach beyond the image.
void crop_with_border(Canvas& canvas, const Region& region, const Border& border) {
  const ImageSize whole = canvas.whole();
  if (region.top >= 0 && region.left >= 0 && region.top + region.height <= whole.height &&
      region.left + region.width <= whole.width) {
    canvas.crop(region);
    return;
  }
  const Canvas::Next next = canvas.make(region.size());
  copy_with_border(canvas.source(), region, border, next.image);
  canvas.take(next);
}

class CenterCrop final : public Transform {
 public:
  CenterCrop(const CropConfig& config, const std::string& path)
      : size_(checked_size(config.size(), path + ".size")) {}

  bool random() const override { return false; }
  bool in_place() const override { return true; }  // but for a image that is too small
  std::optional<ImageSize> output_size(std::optional<ImageSize>) const override { return size_; }
  std::optional<Need> needs(ImageSize whole, Draws) const override {
    if (whole.height < size_.height || whole.width < size_.width) return {};
    return Need{region(whole), size_};
  }
  void apply(Canvas& canvas, Draws&) const override {
    crop_with_border(canvas, region(canvas.whole()), Border{});
  }

 private:
  // Where a image is too small, as much as can be is black on both sides, the odd pixel after it.
  static int begin(int extent, int size) {
    return extent < size ? -((size - extent) / 2) : rounded((extent - size) / 2.0);
  }
  Region region(ImageSize whole) const {
    return {begin(whole.height, size_.height), begin(whole.width, size_.width), size_.height,
            size_.width};
  }

  ImageSize size_;
};

class RandomCrop final : public Transform {
 public:
  RandomCrop(const RandomCropConfig& config, const std::string& path)
      : size_(checked_size(config.size(), path + ".size")),
        padding_(checked_padding(config.padding(), path + ".padding")),
        border_{.fill = checked_fill(config.fill(), path + ".fill"), .reflect = config.reflect()} {}

  bool random() const override { return true; }
  bool in_place() const override { return padding_ == 0; }
  std::optional<ImageSize> output_size(std::optional<ImageSize>) const override { return size_; }
  std::optional<Need> needs(ImageSize whole, Draws draws) const override {
    if (padding_ != 0 || !fits(whole)) return {};
    return Need{draw(whole, draws), size_};
  }
  void apply(Canvas& canvas, Draws& draws) const override {
    const ImageSize whole = canvas.whole();
    if (!fits(whole)) {
      throw ImageError(
          fmt::format("is {} x {} (height x width), padded by {}: less than the {} "
                      "x {} that random_crop wants",
                      whole.height, whole.width, padding_, size_.height, size_.width));
    }
    crop_with_border(canvas, draw(whole, draws), border_);
  }

 private:
  bool fits(ImageSize whole) const {
    return whole.height + 2 * padding_ >= size_.height && whole.width + 2 * padding_ >= size_.width;
  }
  Region draw(ImageSize whole, Draws& draws) const {
    const int top = draws.below(whole.height + 2 * padding_ - size_.height + 1);
    const int left = draws.below(whole.width + 2 * padding_ - size_.width + 1);
    return {top - padding_, left - padding_, size_.height, size_.width};
  }

  ImageSize size_;
  int padding_;
  Border border_;
};

class RandomResizedCrop final : public Transform {
 public:
  RandomResizedCrop(const RandomResizedCropConfig& config, const std::string& path)
      : size_(checked_size(config.size(), path + ".size")),
        scale_(checked_range(config.min_scale(), config.max_scale(), 1, path, "scale")),
        ratio_(checked_range(config.min_ratio(), config.max_ratio(), 1000, path, "ratio")),
        filter_(filter_of(config.interpolation())) {}

  bool random() const override { return true; }
  std::optional<ImageSize> output_size(std::optional<ImageSize>) const override { return size_; }
  std::optional<Need> needs(ImageSize whole, Draws draws) const override {
    const Region region = draw(whole, draws);
    // Single pixels that are picked are not those of a smaller image.
    return Need{region, filter_ == Filter::kNearest ? region.size() : size_};
  }
  void apply(Canvas& canvas, Draws& draws) const override {
    canvas.resize(draw(canvas.whole(), draws), size_, filter_);
  }

 private:
  Region draw(ImageSize whole, Draws& draws) const {
    constexpr int kTries = 10;
    const double area = static_cast<double>(whole.height) * whole.width;
    for (int i = 0; i < kTries; ++i) {
      const double target = area * static_cast<double>(draws.uniform(scale_.min, scale_.max));
      const double ratio =
          std::exp(static_cast<double>(draws.uniform(std::log(ratio_.min), std::log(ratio_.max))));
      const int width = rounded(std::sqrt(target * ratio));
      const int height = rounded(std::sqrt(target / ratio));
      if (width < 1 || width > whole.width || height < 1 || height > whole.height) continue;
      const int top = draws.below(whole.height - height + 1);
      const int left = draws.below(whole.width - width + 1);
      return {top, left, height, width};
    }
    return in_the_middle(whole);
  }
  // As much of it as has a permitted ratio.
  Region in_the_middle(ImageSize whole) const {
    const double ratio = static_cast<double>(whole.width) / whole.height;
    ImageSize size = whole;
    if (ratio < static_cast<double>(ratio_.min)) {
      size.height = std::max(1, rounded(whole.width / static_cast<double>(ratio_.min)));
    } else if (ratio > static_cast<double>(ratio_.max)) {
      size.width = std::max(1, rounded(whole.height * static_cast<double>(ratio_.max)));
    }
    return {(whole.height - size.height) / 2, (whole.width - size.width) / 2, size.height,
            size.width};
  }

  ImageSize size_;
  Range scale_;  // of the area
  Range ratio_;  // width to height
  Filter filter_;
};

}  // namespace

std::unique_ptr<Transform> make_center_crop(const CropConfig& config, const std::string& path) {
  return std::make_unique<CenterCrop>(config, path);
}

std::unique_ptr<Transform> make_random_crop(const RandomCropConfig& config,
                                            const std::string& path) {
  return std::make_unique<RandomCrop>(config, path);
}

std::unique_ptr<Transform> make_random_resized_crop(const RandomResizedCropConfig& config,
                                                    const std::string& path) {
  return std::make_unique<RandomResizedCrop>(config, path);
}

}  // namespace trireme::data
