// Image transforms: the steps between decoding an image and feeding it to the network.
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

// The image that a pipeline of transforms works on, together with the buffers it is stored in.
// Before the first transform it may hold only a region of the full image at reduced resolution, as
// that transform requested (Transform::needs).
class Canvas {
  enum class Place { kMemory0, kMemory1, kOutput, kBorrowed };

 public:
  explicit Canvas(int channels) : channels_(channels) {}

  int channels() const { return channels_; }
  ImageSize size() const { return image_.size(); }
  // Returns the current image for modification in place. Copies a borrowed image first.
  const ImageView& image();
  // Returns the current image for reading. Never copies.
  const ImageView& source() const { return image_; }
  // Returns true if modifying the image in place is cheaper than writing a new one. It is not if
  // the image would have to be copied anyway, because it is borrowed or not yet in the output.
  bool prefers_in_place() const;
  // Returns the size of the full image. Differs from what is stored only for the first transform,
  // see Transform::needs.
  ImageSize full_size() const { return full_size_; }

  // Memory for a new image.
  struct Target {
    ImageView image;
    Place place;
  };
  // Returns memory to write a new image of this size to, distinct from that of the current image.
  Target allocate(ImageSize size);
  // Makes `target` the current image, after its pixels have been written.
  void commit(const Target& target) { set_current(target.image, target.place); }
  // Crops to a region of the full image.
  void crop(const Region& region);
  // Resizes a region of the full image to `size`.
  void resize(const Region& region, ImageSize size, Filter filter);

  // The functions below are for the code that runs the transforms.

  // Starts a new image, to be written to `output`. If the last image allocated has the size of the
  // output, it is allocated there, which saves a copy.
  void begin(const ImageView& output);
  // Announces whether a transform may allocate another image after the next one. If so, the next
  // one is not placed in the output.
  void expect_more_images(bool more) { more_images_follow_ = more; }
  // Makes `target` the current image. It shows the region `covers` of an image of size `full`,
  // reduced by a factor of 1, 2, 4 or 8 (rounded up).
  void commit_part(const Target& target, const Region& covers, ImageSize full);
  // Makes `image` the current image without copying it. It must stay valid until finish() and is
  // not modified.
  void borrow(const ImageView& image);
  // Copies the image to the output unless it is there already. Throws ImageError if its size is
  // not that of the output.
  void finish();

 private:
  Place place_for(ImageSize size) const;
  void set_current(const ImageView& image, Place place);

  int channels_;
  ImageView image_;
  Place place_ = Place::kBorrowed;
  Region covers_;
  int shrink_ = 1;
  ImageSize full_size_;
  ImageView output_;
  bool more_images_follow_ = false;
  Image memory_[2];
  Resizer resizer_;
};

class Transform {
 public:
  virtual ~Transform() = default;
  // Returns true if the result depends on random numbers. The results of the transforms before the
  // first random one can be cached (data.cache).
  virtual bool random() const = 0;
  // Returns true if objects are at other positions in the result, in proportion to its size.
  // Targets that depend on positions would have to follow.
  virtual bool moves_objects() const = 0;
  // Returns true if apply() only crops or modifies the image and never calls Canvas::allocate.
  virtual bool in_place() const { return false; }
  // Returns the size of the result for an image of `size`. Either is nullopt if it is not known
  // before the image is read.
  virtual std::optional<ImageSize> output_size(std::optional<ImageSize> size) const { return size; }
  // The region of the image that apply() reads, and the size to which it scales that region.
  struct Need {
    Region region;
    ImageSize scaled_to;
  };
  // Returns which part of an image of size `full` apply() will read if it is given the same draws,
  // so that the decoder can skip the rest. Returns nullopt if it reads the entire image at full
  // size.
  virtual std::optional<Need> needs(ImageSize /*full*/, Draws /*draws*/) const { return {}; }
  // Transforms the image on the canvas. Throws ImageError if that is impossible, for example if
  // the image is smaller than the crop.
  virtual void apply(Canvas& canvas, Draws& draws) const = 0;
};

// Returns the transform that `config` describes. `path` is the name of that field in error
// messages, such as "data.transform[2]". Throws ConfigError if the configuration is invalid.
std::unique_ptr<Transform> make_transform(const TransformConfig& config, const std::string& path);

}  // namespace trireme::data
