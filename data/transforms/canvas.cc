#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/images/codec.h"
#include "data/transforms/transform.h"

namespace trireme::data {
namespace {

int divide_up(int a, int b) { return (a + b - 1) / b; }

// How many times smaller a image is than what it covers.
int shrink_of(ImageSize covers, ImageSize size) {
  int shrink = 1;
  while (shrink < 8 && (divide_up(covers.height, shrink) > size.height ||
                        divide_up(covers.width, shrink) > size.width)) {
    shrink *= 2;
  }
  return shrink;
}

// The smallest region of whole pixels around a box that lies in a image of this size.
Region around(const Box& box, ImageSize size) {
  const int top = static_cast<int>(std::floor(box.top));
  const int left = static_cast<int>(std::floor(box.left));
  const int bottom = std::min(static_cast<int>(std::ceil(box.top + box.height)), size.height);
  const int right = std::min(static_cast<int>(std::ceil(box.left + box.width)), size.width);
  return {top, left, bottom - top, right - left};
}

}  // namespace

void Canvas::begin(const ImageView& output) {
  output_ = output;
  more_to_come_ = false;
  go_on({}, Place::kOutside);
}

Canvas::Place Canvas::place_for(ImageSize size) const {
  if (!more_to_come_ && place_ != Place::kOutput && size == output_.size()) return Place::kOutput;
  return place_ == Place::kMemory0 ? Place::kMemory1 : Place::kMemory0;
}

Canvas::Next Canvas::make(ImageSize size) {
  const Place place = place_for(size);
  if (place == Place::kOutput) return {output_, place};
  return {memory_[place == Place::kMemory0 ? 0 : 1].reshape(size, channels_), place};
}

void Canvas::go_on(const ImageView& image, Place place) {
  image_ = image;
  place_ = place;
  whole_ = image.size();
  covers_ = {0, 0, whole_.height, whole_.width};
  shrink_ = 1;
}

void Canvas::take_part(const Next& next, const Region& covers, ImageSize whole) {
  take(next);
  covers_ = covers;
  whole_ = whole;
  shrink_ = shrink_of(covers.size(), image_.size());
}

void Canvas::show(const ImageView& image) { go_on(image, Place::kOutside); }

const ImageView& Canvas::image() {
  if (place_ == Place::kOutside) {
    const Next next = make(size());
    copy_pixels(image_, next.image);
    take(next);
  }
  return image_;
}

bool Canvas::settled() const {
  return place_ != Place::kOutside && place_for(size()) != Place::kOutput;
}

void Canvas::crop(const Region& region) {
  Region part = region;
  part.top -= covers_.top;
  part.left -= covers_.left;
  go_on(image_.part(part), place_);
}

void Canvas::resize(const Region& region, ImageSize size, Filter filter) {
  if (shrink_ == 1 && region.size() == size) {
    crop(region);
    return;
  }
  const double scale = 1.0 / shrink_;
  Box box{.top = (region.top - covers_.top) * scale,
          .left = (region.left - covers_.left) * scale,
          .height = region.height * scale,
          .width = region.width * scale};
  const Region part = around(box, image_.size());
  box.top -= part.top;
  box.left -= part.left;
  const Next next = make(size);
  resizer_.resize(image_.part(part), box, next.image, filter);
  take(next);
}

void Canvas::finish() {
  if (size() != output_.size()) {
    throw ImageError(fmt::format(
        "is {} x {} (height x width) after its transforms, others are {} x {}; a resize or crop to "
        "one size is missing",
        size().height, size().width, output_.height, output_.width));
  }
  if (place_ == Place::kOutput) return;
  copy_pixels(image_, output_);
  go_on(output_, Place::kOutput);
}

}  // namespace trireme::data
