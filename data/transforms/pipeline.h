// The sequence of transforms of the training or the evaluation samples.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/data.pb.h"
#include "data/dataset.h"
#include "data/transforms/transform.h"

namespace trireme::data {

class Pipeline {
 public:
  // Builds the transforms of data.transform (training) or data.eval_transform (evaluation). Throws
  // ConfigError if one is invalid, or random in evaluation.
  Pipeline(const DataConfig& config, Part part, uint64_t seed);

  int size() const { return static_cast<int>(transforms_.size()); }
  // Returns the number of transforms before the first random one; all if none is random.
  int fixed() const { return fixed_; }
  // Returns the field of the first transform that moves objects, such as
  // "data.transform[2].horizontal_flip"; empty if there is none.
  const std::string& moving() const { return moving_; }
  // Returns the size of an image of `size` after the transforms [begin, end), see
  // Transform::output_size.
  std::optional<ImageSize> output_size(std::optional<ImageSize> size, int begin, int end) const;
  // Returns which part of an image of size `full` the first transform reads, see Transform::needs.
  // Requires size() > 0.
  std::optional<Transform::Need> needs(ImageSize full, SampleId id) const;
  // Returns true if a transform from `begin` on allocates an image; see
  // Canvas::expect_more_images, to be called with it before an image for them is allocated.
  bool allocates_from(int begin) const { return begin <= last_allocating_; }
  // Applies the transforms [begin, end).
  void apply(int begin, int end, SampleId id, Canvas& canvas) const;

 private:
  Draws draws(SampleId id, int transform) const {
    return Draws(seed_, id.epoch, id.draw < 0 ? id.index : id.draw, transform);
  }

  std::vector<std::unique_ptr<Transform>> transforms_;
  uint64_t seed_;
  std::string moving_;
  int fixed_ = 0;
  int last_allocating_ = -1;  // index of the last transform that is not in place
};

}  // namespace trireme::data
