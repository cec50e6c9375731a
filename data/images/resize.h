// Resizes images.
#pragma once

#include <cstdint>
#include <vector>

#include "data/images/image.h"

namespace trireme::data {

enum class Filter {
  kNearest,
  kBilinear,  // triangle filter, stretched when shrinking to prevent aliasing
  kBicubic,   // cubic filter with a = -0.5, stretched likewise
};

// A part of an image, in coordinates where pixel (y, x) covers [y, y + 1) x [x, x + 1).
struct Box {
  double top = 0;
  double left = 0;
  double height = 0;
  double width = 0;
};

// The filter along one axis: each output is a weighted sum of `count` consecutive inputs.
struct FilterTaps {
  int count = 0;
  bool overshoot = false;        // some weights are negative
  std::vector<int> first;        // the first input of each output
  std::vector<int32_t> weights;  // [outputs, count], in units of 2^-22
};

// Resizes images one after another, reusing its tables and memory. Not thread-safe.
class Resizer {
 public:
  // Resizes the part `box` of `from` to `to`. The box must be within `from` and not empty. The
  // images must have the same number of channels, 1 or 3, and must not overlap. The result depends
  // only on pixels that the box touches. Resizes horizontally first, then vertically, rounding to
  // bytes each time. Results are bit-identical to Pillow's Image.crop(...).resize(size, filter,
  // box), where crop() selects the pixels that the box touches. (Since version 13, Pillow resizes
  // some images vertically first, if they shrink more vertically than horizontally.)
  void resize(const ImageView& from, const Box& box, const ImageView& to, Filter filter);

 private:
  void resize_horizontally(const ImageView& from, const ImageView& to);

  FilterTaps horizontal_, vertical_;
  std::vector<uint8_t> columns_before_, columns_after_;  // a few rows, transposed
  Image rows_;                                           // image after the horizontal pass
};

}  // namespace trireme::data
