#include <algorithm>
#include <array>
#include <cstring>

#include "core/vectorized.h"
#include "data/transforms/fields.h"
#include "data/transforms/transforms.h"

namespace trireme::data {
namespace {

using Bytes16 = uint8_t __attribute__((vector_size(16)));

// Writes pixels in the opposite order; `from` and `to` do not overlap.
TRIREME_VECTORIZED void reverse_rgb(const uint8_t* __restrict from, int pixels,
                                    uint8_t* __restrict to) {
  int i = 0;
  // Five at once: of the 16 bytes that end with them the first is another one's, which is written
  // behind them, where the next five follow.
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

// The same in place, a piece from the left and one from the right at a time.
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
  Flip(const ChanceConfig& config, const std::string& path)
      : probability_(checked_probability(config.probability(), path + ".probability")) {}

  bool random() const override { return probability_ > 0 && probability_ < 1; }
  bool in_place() const override { return true; }
  void apply(Canvas& canvas, Draws& draws) const override {
    if (!draws.chance(probability_)) return;
    if (canvas.settled()) {
      flip(canvas.image());
      return;
    }
    const Canvas::Next next = canvas.make(canvas.size());
    flip(canvas.source(), next.image);
    canvas.take(next);
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

std::unique_ptr<Transform> make_horizontal_flip(const ChanceConfig& config,
                                                const std::string& path) {
  return std::make_unique<HorizontalFlip>(config, path);
}

std::unique_ptr<Transform> make_vertical_flip(const ChanceConfig& config, const std::string& path) {
  return std::make_unique<VerticalFlip>(config, path);
}

}  // namespace trireme::data
