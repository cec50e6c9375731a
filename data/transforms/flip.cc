#include <algorithm>
#include <array>
#include <cstring>

#include "core/vectorized.h"
#include "data/transforms/fields.h"
#include "data/transforms/transforms.h"

namespace trireme::data {
namespace {

using Bytes16 = uint8_t __attribute__((vector_size(16)));

// Reverses the order of pixels. `from` and `to` must not overlap.
TRIREME_VECTORIZED void reverse_rgb(const uint8_t* __restrict from, int pixels,
                                    uint8_t* __restrict to) {
  int i = 0;
  // Five pixels (15 bytes) at once. The 16th byte belongs to a neighboring pixel; it is written
  // after the five and then overwritten by the next five.
  for (; i + 6 <= pixels; i += 5) {
    Bytes16 five;
    std::memcpy(&five, from + 3 * (pixels - i) - 16, sizeof five);
    five =
        __builtin_shufflevector(five, five, 13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, 0);
    std::memcpy(to + 3 * i, &five, sizeof five);
  }
  for (; i < pixels; ++i) std::memcpy(to + 3 * i, from + 3 * (pixels - 1 - i), 3);
}

void reverse(const uint8_t* from, int pixels, int channels, uint8_t* to) {
  if (channels == 3) {
    reverse_rgb(from, pixels, to);
  } else {
    std::reverse_copy(from, from + pixels, to);
  }
}

// Reverses a row in place by swapping pieces from the left and the right.
void reverse(uint8_t* row, int pixels, int channels) {
  constexpr int kPiece = 256;
  std::array<uint8_t, size_t{3} * kPiece> copy;
  const auto at = [&](int pixel) { return row + std::ptrdiff_t{pixel} * channels; };
  int left = 0;
  for (int right = pixels; right - left > 1;) {
    const int count = std::min((right - left) / 2, kPiece);
    std::memcpy(copy.data(), at(left), count * channels);
    reverse(at(right - count), count, channels, at(left));
    reverse(copy.data(), count, channels, at(right - count));
    left += count;
    right -= count;
  }
}

class Flip : public Transform {
 public:
  Flip(const ProbabilityConfig& config, const std::string& path)
      : probability_(checked_probability(config.probability(), path + ".probability")) {}

  bool random() const override { return probability_ > 0 && probability_ < 1; }
  bool moves_objects() const override { return probability_ > 0; }
  bool in_place() const override { return true; }
  void apply(Canvas& canvas, Draws& draws) const override {
    if (!draws.chance(probability_)) return;
    if (canvas.prefers_in_place()) {
      flip(canvas.image());
      return;
    }
    const Canvas::Target target = canvas.allocate(canvas.size());
    flip(canvas.source(), target.image);
    canvas.commit(target);
  }

 private:
  virtual void flip(const ImageView& image) const = 0;
  virtual void flip(const ImageView& from, const ImageView& to) const = 0;

  float probability_;
};

class HorizontalFlip final : public Flip {
 public:
  using Flip::Flip;

 private:
  void flip(const ImageView& image) const override {
    for (int y = 0; y < image.height; ++y) reverse(image.row(y), image.width, image.channels);
  }
  void flip(const ImageView& from, const ImageView& to) const override {
    for (int y = 0; y < from.height; ++y) {
      reverse(from.row(y), from.width, from.channels, to.row(y));
    }
  }
};

class VerticalFlip final : public Flip {
 public:
  using Flip::Flip;

 private:
  void flip(const ImageView& image) const override {
    for (int y = 0; y < image.height / 2; ++y) {
      uint8_t* row = image.row(y);
      std::swap_ranges(row, row + image.row_bytes(), image.row(image.height - 1 - y));
    }
  }
  void flip(const ImageView& from, const ImageView& to) const override {
    for (int y = 0; y < from.height; ++y) {
      std::memcpy(to.row(y), from.row(from.height - 1 - y), from.row_bytes());
    }
  }
};

}  // namespace

std::unique_ptr<Transform> make_horizontal_flip(const ProbabilityConfig& config,
                                                const std::string& path) {
  return std::make_unique<HorizontalFlip>(config, path);
}

std::unique_ptr<Transform> make_vertical_flip(const ProbabilityConfig& config,
                                              const std::string& path) {
  return std::make_unique<VerticalFlip>(config, path);
}

}  // namespace trireme::data
