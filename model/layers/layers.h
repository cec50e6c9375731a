// One line a layer: how its message becomes it.
#pragma once

#include <memory>

#include "model/layer.h"
#include "model/model.pb.h"

namespace trireme::model {

std::unique_ptr<Layer> make_dense(const LayerConfig& config);
std::unique_ptr<Layer> make_conv2d(const LayerConfig& config);
std::unique_ptr<Layer> make_batch_norm(const LayerConfig& config);
std::unique_ptr<Layer> make_layer_norm(const LayerConfig& config);
std::unique_ptr<Layer> make_max_pool(const LayerConfig& config);
std::unique_ptr<Layer> make_average_pool(const LayerConfig& config);
std::unique_ptr<Layer> make_global_pool(const LayerConfig& config);
std::unique_ptr<Layer> make_activation(ops::Activation activation);
std::unique_ptr<Layer> make_dropout(const LayerConfig& config);
std::unique_ptr<Layer> make_add(const LayerConfig& config);
std::unique_ptr<Layer> make_concat(const LayerConfig& config);
std::unique_ptr<Layer> make_flatten(const LayerConfig& config);
std::unique_ptr<Layer> make_softmax_cross_entropy(const LayerConfig& config);
std::unique_ptr<Layer> make_mean_squared_error(const LayerConfig& config);

}  // namespace trireme::model
