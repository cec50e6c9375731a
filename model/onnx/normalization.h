// The operators that a model begins with to center and scale its input.
#pragma once

#include <string_view>
#include <vector>

#include "model/onnx/onnx.h"

namespace trireme::model::onnx {

bool normalizes(const InputNormalization& normalization);

// Adds the operator "value OP constant" (`reversed`: "constant OP value") to the normalization, the
// constant being one value or one a channel; false where that does not give a normalization.
bool then(InputNormalization& normalization, std::string_view op, const std::vector<float>& values,
          bool reversed);

}  // namespace trireme::model::onnx
