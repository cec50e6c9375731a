#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/images/codec.h"
#include "data/transforms/transform.h"

namespace trireme::data {
namespace {

int divide_up(int a, int b) { return (a + b - 1) / b; }

// Returns the factor (1, 2, 4 or 8) by which a region of size `covers` was reduced to `size`.
int shrink_of(ImageSize covers, ImageSize size) {
  int shrink = 1;
  while (shrink < 8 && (divide_up(covers.height, shrink) > size.height ||
                        divide_up(covers.width, shrink) > size.width)) {
    shrink *= 2;
  }
  return shrink;
}

// Returns the smallest region of whole pixels around a box in an image of this size.
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
  more_images_follow_ = false;
  set_current({}, Place::kBorrowed);
}

Canvas::Place Canvas::place_for(ImageSize size) const {
  if (!more_images_follow_ && place_ != Place::kOutput && size == output_.size()) {
    return Place::kOutput;
  }
  return place_ == Place::kMemory0 ? Place::kMemory1 : Place::kMemory0;
}

Canvas::Target Canvas::allocate(ImageSize size) {
  const Place place = place_for(size);
  if (place == Place::kOutput) return {output_, place};
  return {memory_[place == Place::kMemory0 ? 0 : 1].reshape(size, channels_), place};
}

void Canvas::set_current(const ImageView& image, Place place) {
  image_ = image;
  place_ = place;
  full_size_ = image.size();
  covers_ = {0, 0, full_size_.height, full_size_.width};
  shrink_ = 1;
}

void Canvas::commit_part(const Target& target, const Region& covers, ImageSize full) {
  commit(target);
  covers_ = covers;
  full_size_ = full;
  shrink_ = shrink_of(covers.size(), image_.size());
}

void Canvas::borrow(const ImageView& image) { set_current(image, Place::kBorrowed); }

const ImageView& Canvas::image() {
  if (place_ == Place::kBorrowed) {
    const Target target = allocate(size());
    copy_pixels(image_, target.image);
    commit(target);
  }
  return image_;
}

bool Canvas::prefers_in_place() const {
  return place_ != Place::kBorrowed && place_for(size()) != Place::kOutput;
}

void Canvas::crop(const Region& region) {
  Region part = region;
  part.top -= covers_.top;
  part.left -= covers_.left;
  set_current(image_.part(part), place_);
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
  const Target target = allocate(size);
  resizer_.resize(image_.part(part), box, target.image, filter);
  commit(target);
}

void Canvas::finish() {
  if (size() != output_.size()) {
    throw ImageError(
        fmt::format("is {} x {} (height x width) after its transforms, others are {} x {}; add a "
                    "resize or crop to one size",
                    size().height, size().width, output_.height, output_.width));
  }
  if (place_ == Place::kOutput) return;
  copy_pixels(image_, output_);
  set_current(output_, Place::kOutput);
}

}  // namespace trireme::data
