#include "model/layers/layers.h"

#include "core/error.h"

namespace trireme::model {

std::unique_ptr<Layer> make_layer(const LayerConfig& config) {
  switch (config.kind_case()) {
    case LayerConfig::kDense:
      return make_dense(config);
    case LayerConfig::kConv2D:
      return make_conv2d(config);
    case LayerConfig::kBatchNorm:
      return make_batch_norm(config);
    case LayerConfig::kLayerNorm:
      return make_layer_norm(config);
    case LayerConfig::kMaxPool:
      return make_max_pool(config);
    case LayerConfig::kAveragePool:
      return make_average_pool(config);
    case LayerConfig::kGlobalPool:
      return make_global_pool(config);
    case LayerConfig::kRelu:
      return make_activation(ops::Activation::kRelu);
    case LayerConfig::kSigmoid:
      return make_activation(ops::Activation::kSigmoid);
    case LayerConfig::kTanh:
      return make_activation(ops::Activation::kTanh);
    case LayerConfig::kGelu:
      return make_activation(ops::Activation::kGelu);
    case LayerConfig::kGeluTanh:
      return make_activation(ops::Activation::kGeluTanh);
    case LayerConfig::kSilu:
      return make_activation(ops::Activation::kSilu);
    case LayerConfig::kDropout:
      return make_dropout(config);
    case LayerConfig::kAdd:
      return make_add(config);
    case LayerConfig::kConcat:
      return make_concat(config);
    case LayerConfig::kFlatten:
      return make_flatten(config);
    case LayerConfig::kSoftmaxCrossEntropy:
      return make_softmax_cross_entropy(config);
    case LayerConfig::kMeanSquaredError:
      return make_mean_squared_error(config);
    case LayerConfig::KIND_NOT_SET:
      break;
  }
  throw Error("has no kind; say what it is, e.g. dense { units: 10 }");
}

}  // namespace trireme::model
