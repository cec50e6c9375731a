#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "data/transforms/border.h"
#include "data/transforms/fields.h"
#include "data/transforms/transforms.h"

namespace trireme::data {
namespace {

struct Padding {
  int left = 0, top = 0, right = 0, bottom = 0;
};

Padding checked_paddings(const Extents& padding, const std::string& path) {
  std::array<int, 4> p{};
  for (int i = 0; i < std::min(padding.size(), 4); ++i) {
    p[i] = checked_padding(padding[i], path);
  }
  switch (padding.size()) {
    case 1:
      return {p[0], p[0], p[0], p[0]};
    case 2:
      return {p[0], p[1], p[0], p[1]};
    case 4:
      return {p[0], p[1], p[2], p[3]};
    default:
      throw ConfigError(path, fmt::format("has {} values; 1, 2 or 4 are needed", padding.size()));
  }
}

class Pad final : public Transform {
 public:
  Pad(const PadConfig& config, const std::string& path)
      : padding_(checked_paddings(config.padding(), path + ".padding")),
        border_{.fill = checked_fill(config.fill(), path + ".fill"), .reflect = config.reflect()} {}

  bool random() const override { return false; }
  bool moves_objects() const override { return true; }
  std::optional<ImageSize> output_size(std::optional<ImageSize> size) const override {
    if (!size) return size;
    return ImageSize{size->height + padding_.top + padding_.bottom,
                     size->width + padding_.left + padding_.right};
  }
  void apply(Canvas& canvas, Draws&) const override {
    const ImageSize size = *output_size(canvas.size());
    const Canvas::Target target = canvas.allocate(size);
    copy_with_border(canvas.source(), {-padding_.top, -padding_.left, size.height, size.width},
                     border_, target.image);
    canvas.commit(target);
  }

 private:
  Padding padding_;
  Border border_;
};

}  // namespace

std::unique_ptr<Transform> make_pad(const PadConfig& config, const std::string& path) {
  return std::make_unique<Pad>(config, path);
}

}  // namespace trireme::data
