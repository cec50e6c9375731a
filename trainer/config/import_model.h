// Imports ONNX models into configurations.
#pragma once

#include "trainer/config/config.h"

namespace trireme::train {

// Replaces model.onnx by the network in that file. Sets model.init_from to the file, so that
// training starts from its parameters, unless it is set. Operators with which the file normalizes
// its input become part of data.normalize, and constants that are not trained are added to
// model.freeze. A dense layer at the end gets as many units as the data has classes. Does nothing
// if model.onnx is unset. Throws like read_onnx, with the location of model.onnx.
void import_model(Config& config);

}  // namespace trireme::train
