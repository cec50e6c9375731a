#include "data/transforms/fields.h"
#include "data/transforms/transforms.h"

namespace trireme::data {
namespace {

class Resize final : public Transform {
 public:
  Resize(const ResizeConfig& config, const std::string& path)
      : size_(checked_size(config.size(), path + ".size")),
        shorter_side_only_(config.size_size() == 1),
        filter_(filter_of(config.interpolation())) {}

  bool random() const override { return false; }
  bool moves_objects() const override { return false; }
  std::optional<ImageSize> output_size(std::optional<ImageSize> size) const override {
    if (!shorter_side_only_) return size_;
    if (!size) return size;
    return scaled_size(*size);
  }
  std::optional<Need> needs(ImageSize full, Draws) const override {
    const Region all{0, 0, full.height, full.width};
    // Nearest-neighbor picks other pixels if the decoder has already reduced the image.
    if (filter_ == Filter::kNearest) return Need{all, full};
    return Need{all, *output_size(full)};
  }
  void apply(Canvas& canvas, Draws&) const override {
    const ImageSize full = canvas.full_size();
    canvas.resize({0, 0, full.height, full.width}, *output_size(full), filter_);
  }

 private:
  ImageSize scaled_size(ImageSize from) const {
    const int shorter = size_.height;
    const auto scaled = [shorter](int longer_side, int shorter_side) {
      return static_cast<int>(int64_t{shorter} * longer_side / shorter_side);
    };
    if (from.width <= from.height) return {scaled(from.height, from.width), shorter};
    return {shorter, scaled(from.width, from.height)};
  }

  ImageSize size_;
  bool shorter_side_only_;
  Filter filter_;
};

}  // namespace

std::unique_ptr<Transform> make_resize(const ResizeConfig& config, const std::string& path) {
  return std::make_unique<Resize>(config, path);
}

}  // namespace trireme::data
