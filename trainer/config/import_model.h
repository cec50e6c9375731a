// Models of others as networks of ours.
#pragma once

#include "trainer/config/config.h"

namespace trireme::train {

// Where the configuration names an ONNX file, puts the network that is in there in its place; its
// values are what training starts from (model.init_from) and its normalization that of the data,
// unless they are given. A dense layer at the end gets as many units as the data has classes.
// Throws as read_onnx does.
void import_model(Config& config);

}  // namespace trireme::train
