// The transforms of a part of the data, in order.
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
  // Of data.transform, or of data.eval_transform, in which nothing may be random. Throws
  // ConfigError.
  Pipeline(const DataConfig& config, Part part, uint64_t seed);

  int size() const { return static_cast<int>(transforms_.size()); }
  // Before the first that is random; all when none is.
  int fixed() const { return fixed_; }
  // What the transforms [begin, end) make of a image of `size`, see Transform::output_size.
  std::optional<ImageSize> output_size(std::optional<ImageSize> size, int begin, int end) const;
  // What the first one looks at, see Transform::needs. There is a first one.
  std::optional<Transform::Need> needs(ImageSize whole, SampleId id) const;
  // To be told to the canvas before it gets a image for the transforms from `begin` on.
  bool makes_from(int begin) const { return begin <= last_maker_; }
  // Does the transforms [begin, end).
  void apply(int begin, int end, SampleId id, Canvas& canvas) const;

 private:
  Draws draws(SampleId id, int transform) const {
    return Draws(seed_, id.epoch, id.draw < 0 ? id.index : id.draw, transform);
  }

  std::vector<std::unique_ptr<Transform>> transforms_;
  uint64_t seed_;
  int fixed_ = 0;
  int last_maker_ = -1;  // of another image
};

}  // namespace trireme::data
