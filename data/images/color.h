// Color adjustments of images with 1 or 3 channels, in place. Results are bit-identical to those of
// Pillow (ImageEnhance, ImageOps, ImageFilter) as torchvision calls it. Adjustments of saturation
// and hue do not change gray images.
#pragma once

#include "data/images/image.h"

namespace trireme::data {

// The next four functions blend the image with a degenerate one: `factor` 0 results in that image,
// 1 in the original, and values above 1 extrapolate. `factor` must not be negative.

// The degenerate image is black.
void adjust_brightness(const ImageView& image, float factor);
// The degenerate image is the mean gray.
void adjust_contrast(const ImageView& image, float factor);
// The degenerate image is the grayscale image.
void adjust_saturation(const ImageView& image, float factor);
// The degenerate image is smoothed (3 x 3, except the border pixels).
void adjust_sharpness(const ImageView& image, float factor);
// Rotates hues by `turns` full turns, in [-0.5, 0.5].
void adjust_hue(const ImageView& image, float turns);

// Sets all channels to the luma.
void make_gray(const ImageView& image);
// Keeps the upper `bits` bits, 1 to 8, of each value.
void posterize(const ImageView& image, int bits);
// Inverts values at or above the threshold.
void solarize(const ImageView& image, float threshold);
// Stretches the values of each channel to [0, 255].
void autocontrast(const ImageView& image);
// Equalizes the histogram of each channel.
void equalize(const ImageView& image);

}  // namespace trireme::data
