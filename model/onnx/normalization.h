// Recognizes the operators with which a model normalizes its input.
#pragma once

#include <string_view>
#include <vector>

#include "model/onnx/onnx.h"

namespace trireme::model::onnx {

// Appends the operator "value OP constant" (or "constant OP value" if `reversed`) to the
// normalization. The constant has one value, or one for each channel. Returns false, and may have
// changed the normalization, if the result is none: its factors must be positive.
bool append_operator(InputNormalization& normalization, std::string_view op,
                     const std::vector<float>& values, bool reversed);

}  // namespace trireme::model::onnx
