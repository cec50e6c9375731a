// Functions that create each kind of layer from its message. layers.def lists them.
#pragma once

#include <memory>

#include "model/layer.h"
#include "model/model.pb.h"

namespace trireme::model {

#define TRIREME_LAYER(Kind, make) std::unique_ptr<Layer> make(const LayerConfig& config);
#define TRIREME_ACTIVATION(Kind)
#include "model/layers/layers.def"

std::unique_ptr<Layer> make_activation(ops::Activation activation);

}  // namespace trireme::model
