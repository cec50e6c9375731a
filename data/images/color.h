// Colors of images of 1 or 3 channels, changed in place. Results are those of Pillow
// (ImageEnhance, ImageOps, ImageFilter) as torchvision calls it, to the bit; what is about color
// leaves gray images as they are.
#pragma once

#include "data/images/image.h"

namespace trireme::data {

// Towards black (0), as it is (1), and beyond. `factor` is not negative here and below.
void adjust_brightness(const ImageView& image, float factor);
// Towards the mean gray.
void adjust_contrast(const ImageView& image, float factor);
// Towards its gray image.
void adjust_saturation(const ImageView& image, float factor);
// Towards what it is when smoothed (3 x 3, without the edge).
void adjust_sharpness(const ImageView& image, float factor);
// Hues go round by so many turns, in [-0.5, 0.5].
void adjust_hue(const ImageView& image, float turns);

// All channels become the same.
void make_gray(const ImageView& image);
// Keeps so many of the upper bits, 1 to 8.
void posterize(const ImageView& image, int bits);
// Inverts what is at or above the threshold.
void solarize(const ImageView& image, float threshold);
// Each channel by itself: from 0 to 255; as many pixels at each level.
void autocontrast(const ImageView& image);
void equalize(const ImageView& image);

}  // namespace trireme::data
