// Class probabilities and rankings from logits.
#pragma once

#include <span>
#include <vector>

namespace trireme::train {

// Returns the probabilities of the classes.
std::vector<double> softmax(std::span<const float> logits);
// Returns the indices of the `count` largest values (or of all, if there are fewer), in descending
// order. Of equal values the lower index comes first, as the loss ranks them; NaNs come last.
std::vector<int> top_k(std::span<const float> values, int count);

}  // namespace trireme::train
