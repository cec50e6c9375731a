// The operators that a model begins with to centre and scale its input.
#pragma once

#include <string_view>
#include <vector>

#include "model/onnx/onnx.h"

namespace trireme::model::onnx {

bool normalises(const InputNormalisation& normalisation);

// Adds the operator "value OP constant" (`reversed`: "constant OP value") to the normalisation, the
// constant being one value or one a channel; false where that does not give a normalisation.
bool then(InputNormalisation& normalisation, std::string_view op, const std::vector<float>& values,
          bool reversed);

}  // namespace trireme::model::onnx
