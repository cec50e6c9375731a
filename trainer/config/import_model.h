// Imports ONNX models into configurations.
#pragma once

#include "trainer/config/config.h"

namespace trireme::train {

// Replaces model.onnx by the network in that file. Sets model.init_from to the file, so that
// training starts from its parameters, and data.normalize to its normalization, unless they are
// set. A dense layer at the end gets as many units as the data has classes. Does nothing if
// model.onnx is unset. Throws like read_onnx, with the location of model.onnx.
void import_model(Config& config);

}  // namespace trireme::train
