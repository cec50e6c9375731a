// What happens to a image between its file and the network, one step of it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "data/images/image.h"
#include "data/images/resize.h"
#include "data/transforms/draws.h"

namespace trireme {
class DataConfig;
class TransformConfig;
}  // namespace trireme

namespace trireme::data {

// The image on its way. It may be a part of the whole, and smaller: the first transform can have
// asked for that (Transform::needs).
class Canvas {
  enum class Place { kMemory0, kMemory1, kOutput, kOutside };

 public:
  explicit Canvas(int channels) : channels_(channels) {}

  int channels() const { return channels_; }
  ImageSize size() const { return image_.size(); }
  // The image as it is now; its pixels may be changed in place.
  const ImageView& image();
  // The same to look at only: nothing is copied where the pixels belong to somebody else.
  const ImageView& source() const { return image_; }
  // Whether to change it in place is best: otherwise it would have to be copied anyway, so that
  // making another one costs nothing.
  bool settled() const;
  // How large the whole image would be. It is all there but for the first transform, which sees
  // what it needs.
  ImageSize whole() const { return whole_; }

  // A image to be made from this one: memory for its pixels.
  struct Next {
    ImageView image;
    Place place;
  };
  Next make(ImageSize size);
  // Goes on with it, now that its pixels are written.
  void take(const Next& next) { go_on(next.image, next.place); }
  // Goes on with a part of the whole alone.
  void crop(const Region& region);
  // Goes on with a part of the whole in another size.
  void resize(const Region& region, ImageSize size, Filter filter);

  // For who drives the transforms. Where the image is wanted in the end: when the last one that
  // is made is of this size, it is made there, and nothing has to be copied.
  void begin(const ImageView& output);
  // Whether another image may be made after the next one, which then leaves the output free.
  void expect_more(bool more) { more_to_come_ = more; }
  // Goes on with one that `covers` a part of the whole and is smaller than that 1, 2, 4 or 8 times
  // (rounded up).
  void take_part(const Next& next, const Region& covers, ImageSize whole);
  // Goes on with one that lies elsewhere and stays as it is until finish().
  void show(const ImageView& image);
  // Sees to it that the image is in the output. Throws ImageError when it has another size.
  void finish();

 private:
  Place place_for(ImageSize size) const;
  void go_on(const ImageView& image, Place place);

  int channels_;
  ImageView image_;
  Place place_ = Place::kOutside;
  Region covers_;
  int shrink_ = 1;
  ImageSize whole_;
  ImageView output_;
  bool more_to_come_ = false;
  Image memory_[2];
  Resizer resizer_;
};

class Transform {
 public:
  virtual ~Transform() = default;
  // Whether it draws; what comes before the first that does may be kept (data.cache).
  virtual bool random() const = 0;
  // Whether it never makes another image (Canvas::make) but crops or changes the one there is.
  virtual bool in_place() const { return false; }
  // The size of what it makes of a image of `size`; empty: not known before the image is.
  virtual std::optional<ImageSize> output_size(std::optional<ImageSize> size) const { return size; }
  // What it will look at of a image of size `whole`, and how large that will be afterwards;
  // empty: at all of it, as it is. Draws what apply() will draw.
  struct Need {
    Region region;
    ImageSize becomes;
  };
  virtual std::optional<Need> needs(ImageSize /*whole*/, Draws /*draws*/) const { return {}; }
  // Throws ImageError when it cannot be done to this image, e.g. cropping to more than there
  // is.
  virtual void apply(Canvas& canvas, Draws& draws) const = 0;
};

// `path` is the configuration's field, for ConfigError: "data.transform[2]".
std::unique_ptr<Transform> make_transform(const TransformConfig& config, const std::string& path);

}  // namespace trireme::data
