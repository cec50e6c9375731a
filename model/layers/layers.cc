#include "model/layers/layers.h"

#include "core/error.h"

namespace trireme::model {

std::unique_ptr<Layer> make_layer(const LayerConfig& config) {
  switch (config.kind_case()) {
#define TRIREME_LAYER(Kind, make) \
  case LayerConfig::k##Kind:      \
    return make(config);
#define TRIREME_ACTIVATION(Kind) \
  case LayerConfig::k##Kind:     \
    return make_activation(ops::Activation::k##Kind);
#include "model/layers/layers.def"
    case LayerConfig::KIND_NOT_SET:
      break;
  }
  throw Error("has no kind; give it one, such as dense { units: 10 }");
}

}  // namespace trireme::model
