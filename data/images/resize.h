// Images of another size.
#pragma once

#include <cstdint>
#include <vector>

#include "data/images/image.h"

namespace trireme::data {

enum class Filter {
  kNearest,
  kBilinear,  // triangle of the width of an output pixel, so that shrinking does not alias
  kBicubic,   // cubic with a = -0.5, likewise
};

// A part of a image in its coordinates: pixel (y, x) covers [y, y + 1) x [x, x + 1).
struct Box {
  double top = 0;
  double left = 0;
  double height = 0;
  double width = 0;
};

// How positions along one axis are made of those of another: each as a weighted sum of `count`
// neighbors.
struct FilterTaps {
  int count = 0;
  bool overshoot = false;        // some weights are negative
  std::vector<int> first;        // of the neighbors, for each output
  std::vector<int32_t> weights;  // [outputs, count], in 2^-22
};

// Resizes one image after the other; keeps tables and memory. For one thread at a time.
class Resizer {
 public:
  // Makes `to` of the `box` of `from`, which must lie within and not be empty; both have the same
  // channels, 1 or 3, and do not overlap. Pixels that the box does not touch are not looked at, so
  // that it does not matter how much was decoded. First across, then down, each time to bytes.
  // Results are those of Pillow, to the bit, of what it first crops to the pixels that the box
  // touches: Image.crop(...).resize(size, filter, box). (From version 13 it makes some images
  // that shrink downwards more than across in the other order.)
  void resize(const ImageView& from, const Box& box, const ImageView& to, Filter filter);

 private:
  void across(const ImageView& from, const ImageView& to);

  FilterTaps across_, down_;
  std::vector<uint8_t> columns_before_, columns_after_;  // of a few rows, transposed
  Image rows_;                                           // resized across, not yet down
};

}  // namespace trireme::data
