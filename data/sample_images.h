// Samples that are images, to be looked at.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data/dataset.h"
#include "data/images/image.h"

namespace trireme::data {

// Whether samples [C, H, W] of such a kind can be shown.
bool are_images(const TensorSpec& spec);

// Of samples that lie one after the other, as the network gets them: of 3 channels in color, else
// the first alone. Numbers that are no bytes go from black, the least of all of them, to white.
std::vector<Image> images_of(const TensorSpec& spec, std::span<const std::byte> inputs);

// The class of each, from targets that lie one after the other: its name, or "class 3"; empty where
// samples have no class, or several.
std::vector<std::string> labels_of(const Dataset& dataset, std::span<const std::byte> targets);

}  // namespace trireme::data
