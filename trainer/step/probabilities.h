// What logits say.
#pragma once

#include <span>
#include <vector>

namespace trireme::train {

// The classes' probabilities.
std::vector<double> softmax(std::span<const float> logits);
// Which `count` numbers are the largest (all, where there are fewer), the largest first, of equal
// ones the lower: as the loss ranks them.
std::vector<int> largest(std::span<const float> numbers, int count);

}  // namespace trireme::train
