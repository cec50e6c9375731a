#include "data/transforms/fields.h"
#include "data/transforms/transforms.h"

namespace trireme::data {
namespace {

class Resize final : public Transform {
 public:
  Resize(const ResizeConfig& config, const std::string& path)
      : size_(checked_size(config.size(), path + ".size")),
        only_shorter_(config.size_size() == 1),
        filter_(filter_of(config.interpolation())) {}

  bool random() const override { return false; }
  std::optional<ImageSize> output_size(std::optional<ImageSize> size) const override {
    if (!only_shorter_) return size_;
    if (!size) return size;
    return in_proportion(*size);
  }
  std::optional<Need> needs(ImageSize whole, Draws) const override {
    const Region all{0, 0, whole.height, whole.width};
    // Single pixels that are picked are not those of a smaller image.
    if (filter_ == Filter::kNearest) return Need{all, whole};
    return Need{all, *output_size(whole)};
  }
  void apply(Canvas& canvas, Draws&) const override {
    const ImageSize whole = canvas.whole();
    canvas.resize({0, 0, whole.height, whole.width}, *output_size(whole), filter_);
  }

 private:
  ImageSize in_proportion(ImageSize from) const {
    const int shorter = size_.height;
    const auto scaled = [shorter](int longer_side, int shorter_side) {
      return static_cast<int>(int64_t{shorter} * longer_side / shorter_side);
    };
    if (from.width <= from.height) return {scaled(from.height, from.width), shorter};
    return {shorter, scaled(from.width, from.height)};
  }

  ImageSize size_;
  bool only_shorter_;
  Filter filter_;
};

}  // namespace

std::unique_ptr<Transform> make_resize(const ResizeConfig& config, const std::string& path) {
  return std::make_unique<Resize>(config, path);
}

}  // namespace trireme::data
