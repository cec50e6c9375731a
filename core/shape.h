// Shape: the extents of a tensor, outermost first, e.g. [N, C, H, W] for images and [N, F] for
// rows. The order is always the logical one; Layout describes the order of elements in memory.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace trireme {

class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents)
      : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const int64_t> extents) : rank_(static_cast<int>(extents.size())) {
    assert(rank_ <= kMaxRank);
    std::copy(extents.begin(), extents.end(), extents_.begin());
  }

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return extents_[i]; }
  int64_t& operator[](int i) { return extents_[i]; }
  const int64_t* begin() const { return extents_.data(); }
  const int64_t* end() const { return extents_.data() + rank_; }

  // Returns the number of elements; 1 for a scalar (rank 0).
  int64_t elements() const {
    int64_t n = 1;
    for (int64_t extent : *this) n *= extent;
    return n;
  }

  bool operator==(const Shape& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

  // Returns e.g. "[64, 3, 32, 32]".
  std::string to_string() const {
    std::string text = "[";
    for (int i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string((*this)[i]);
    return text + "]";
  }

 private:
  std::array<int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

}  // namespace trireme
