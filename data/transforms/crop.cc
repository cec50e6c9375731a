#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/images/codec.h"
#include "data/transforms/border.h"
#include "data/transforms/fields.h"
#include "data/transforms/transforms.h"

namespace trireme::data {
namespace {

// Rounds to the nearest integer, halves to even.
int rounded(double x) { return static_cast<int>(std::nearbyint(x)); }

// Crops to a region that may extend beyond the image.
void crop_with_border(Canvas& canvas, const Region& region, const Border& border) {
  const ImageSize full = canvas.full_size();
  if (region.top >= 0 && region.left >= 0 && region.top + region.height <= full.height &&
      region.left + region.width <= full.width) {
    canvas.crop(region);
    return;
  }
  const Canvas::Target target = canvas.allocate(region.size());
  copy_with_border(canvas.source(), region, border, target.image);
  canvas.commit(target);
}

class CenterCrop final : public Transform {
 public:
  CenterCrop(const CropConfig& config, const std::string& path)
      : size_(checked_size(config.size(), path + ".size")) {}

  bool random() const override { return false; }
  bool moves_objects() const override { return true; }
  bool in_place() const override { return true; }  // unless the image is too small
  std::optional<ImageSize> output_size(std::optional<ImageSize>) const override { return size_; }
  std::optional<Need> needs(ImageSize full, Draws) const override {
    if (full.height < size_.height || full.width < size_.width) return {};
    return Need{region(full), size_};
  }
  void apply(Canvas& canvas, Draws&) const override {
    crop_with_border(canvas, region(canvas.full_size()), Border{});
  }

 private:
  // An image that is too small is centered on black; an odd pixel goes to the right or the bottom.
  static int begin(int extent, int size) {
    return extent < size ? -((size - extent) / 2) : rounded((extent - size) / 2.0);
  }
  Region region(ImageSize full) const {
    return {begin(full.height, size_.height), begin(full.width, size_.width), size_.height,
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
  bool moves_objects() const override { return true; }
  bool in_place() const override { return padding_ == 0; }
  std::optional<ImageSize> output_size(std::optional<ImageSize>) const override { return size_; }
  std::optional<Need> needs(ImageSize full, Draws draws) const override {
    if (padding_ != 0 || !fits(full)) return {};
    return Need{draw(full, draws), size_};
  }
  void apply(Canvas& canvas, Draws& draws) const override {
    const ImageSize full = canvas.full_size();
    if (!fits(full)) {
      throw ImageError(
          fmt::format("is {} x {} (height x width), padded by {}, which is smaller than the {} "
                      "x {} of random_crop",
                      full.height, full.width, padding_, size_.height, size_.width));
    }
    crop_with_border(canvas, draw(full, draws), border_);
  }

 private:
  bool fits(ImageSize full) const {
    return full.height + 2 * padding_ >= size_.height && full.width + 2 * padding_ >= size_.width;
  }
  Region draw(ImageSize full, Draws& draws) const {
    const int top = draws.below(full.height + 2 * padding_ - size_.height + 1);
    const int left = draws.below(full.width + 2 * padding_ - size_.width + 1);
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
  bool moves_objects() const override { return true; }
  std::optional<ImageSize> output_size(std::optional<ImageSize>) const override { return size_; }
  std::optional<Need> needs(ImageSize full, Draws draws) const override {
    const Region region = draw(full, draws);
    // Nearest-neighbor picks other pixels if the decoder has already reduced the image.
    return Need{region, filter_ == Filter::kNearest ? region.size() : size_};
  }
  void apply(Canvas& canvas, Draws& draws) const override {
    canvas.resize(draw(canvas.full_size(), draws), size_, filter_);
  }

 private:
  Region draw(ImageSize full, Draws& draws) const {
    constexpr int kTries = 10;
    const double area = static_cast<double>(full.height) * full.width;
    for (int i = 0; i < kTries; ++i) {
      const double target = area * static_cast<double>(draws.uniform(scale_.min, scale_.max));
      const double ratio =
          std::exp(static_cast<double>(draws.uniform(std::log(ratio_.min), std::log(ratio_.max))));
      const int width = rounded(std::sqrt(target * ratio));
      const int height = rounded(std::sqrt(target / ratio));
      if (width < 1 || width > full.width || height < 1 || height > full.height) continue;
      const int top = draws.below(full.height - height + 1);
      const int left = draws.below(full.width - width + 1);
      return {top, left, height, width};
    }
    return central_region(full);
  }
  // Returns the largest centered region with an allowed aspect ratio.
  Region central_region(ImageSize full) const {
    const double ratio = static_cast<double>(full.width) / full.height;
    ImageSize size = full;
    if (ratio < static_cast<double>(ratio_.min)) {
      size.height = std::max(1, rounded(full.width / static_cast<double>(ratio_.min)));
    } else if (ratio > static_cast<double>(ratio_.max)) {
      size.width = std::max(1, rounded(full.height * static_cast<double>(ratio_.max)));
    }
    return {(full.height - size.height) / 2, (full.width - size.width) / 2, size.height,
            size.width};
  }

  ImageSize size_;
  Range scale_;  // fraction of the area
  Range ratio_;  // width / height
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
