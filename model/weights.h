// The values of a network by name, in canonical order, as in model files.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/shape.h"

namespace trireme::model {

struct Weight {
  Shape shape;
  std::vector<float> values;  // row-major
};
// Parameters and running statistics by name: "layer1.0.conv1.weight", "bn1.running_mean".
using Weights = std::map<std::string, Weight, std::less<>>;

}  // namespace trireme::model
