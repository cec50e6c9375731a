// A helper for adding layers to a NetworkConfig.
#pragma once

#include <fmt/format.h>

#include <string>

#include "core/error.h"
#include "model/model.pb.h"

namespace trireme::model {

class NetworkBuilder {
 public:
  NetworkBuilder(const std::string& name, const ZooConfig& options) : options_(options) {
    network_.set_name(name);
  }

  // Adds a layer that reads the layers `inputs`, or the previous layer if empty. The caller sets
  // its kind.
  LayerConfig& layer(const std::string& name, std::initializer_list<std::string> inputs = {}) {
    LayerConfig& added = *network_.add_layer();
    added.set_name(name);
    for (const std::string& input : inputs) added.add_input(input);
    last_ = name;
    return added;
  }
  Conv2dConfig& conv(const std::string& name, int64_t channels, int64_t kernel, int64_t stride = 1,
                     int64_t padding = 0, std::initializer_list<std::string> inputs = {}) {
    Conv2dConfig& config = *layer(name, inputs).mutable_conv2d();
    config.set_channels(channels);
    config.add_kernel(kernel);
    config.add_stride(stride);
    config.add_padding(padding);
    return config;
  }
  void max_pool(const std::string& name, int64_t kernel, int64_t stride, int64_t padding = 0) {
    PoolConfig& config = *layer(name).mutable_max_pool();
    config.add_kernel(kernel);
    config.add_stride(stride);
    config.add_padding(padding);
  }
  void relu(const std::string& name) { layer(name).mutable_relu(); }
  void dense(const std::string& name, int64_t units) {
    layer(name).mutable_dense()->set_units(units);
  }
  void dropout(const std::string& name, float rate) {
    layer(name).mutable_dropout()->set_rate(rate);
  }
  // Adds a batch norm, or a group norm if model.zoo.norm_groups is set.
  void norm(const std::string& name) {
    LayerConfig& config = layer(name);
    has_norms_ = true;
    if (options_.has_norm_groups()) {
      config.mutable_group_norm()->set_num_groups(options_.norm_groups());
    } else {
      config.mutable_batch_norm()->set_sync(options_.sync_batch_norm());
    }
  }
  // Adds the loss of a classifier and returns the network. Throws ConfigError if options of norms
  // contradict the network or each other.
  NetworkConfig finish() {
    if (options_.has_norm_groups() && !has_norms_) {
      throw ConfigError("model.zoo.norm_groups",
                        fmt::format("'{}' has no batch norms to replace", options_.name()));
    }
    if (options_.has_norm_groups() && options_.sync_batch_norm()) {
      throw ConfigError("model.zoo.sync_batch_norm",
                        "cannot be combined with model.zoo.norm_groups");
    }
    SoftmaxCrossEntropyConfig& loss = *layer("loss").mutable_softmax_cross_entropy();
    loss.set_label_smoothing(options_.label_smoothing());
    *loss.mutable_class_weights() = options_.class_weights();
    return network_;
  }
  const std::string& last() const { return last_; }

 private:
  ZooConfig options_;
  NetworkConfig network_;
  std::string last_ = "input";
  bool has_norms_ = false;
};

}  // namespace trireme::model
