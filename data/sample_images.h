// Conversion of samples to images and labels for display.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data/dataset.h"
#include "data/images/image.h"

namespace trireme::data {

// Returns true if inputs of this type and shape, u8 or f32 [C, H, W], can be shown as images.
bool are_images(const TensorSpec& spec);

// Converts consecutive inputs to images: in color if they have 3 channels, otherwise in gray from
// the first channel. f32 values are scaled so that the minimum over all inputs is black and the
// maximum white.
std::vector<Image> images_of(const TensorSpec& spec, std::span<const std::byte> inputs);

// Returns the class of each of the consecutive targets, by name or as "class 3". Empty if samples
// do not have exactly one class each.
std::vector<std::string> labels_of(const Dataset& dataset, std::span<const std::byte> targets);

}  // namespace trireme::data
