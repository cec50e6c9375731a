// Class weights of the loss: model.zoo.class_weights, or class_weights of the network's last layer.
#pragma once

#include <memory>
#include <vector>

#include "data/dataset.h"
#include "trainer/config/config.h"

namespace trireme::train {

// Returns the weight of each class; empty if all are 1.
std::vector<float> class_weights(const RunConfig& run);

// Replaces balanced_class_weights by class_weights computed from the training samples. Throws
// ConfigError, with the location in the configuration file, if the samples do not have one label
// each.
void balance_class_weights(Config& config, const data::Dataset& training);

// Returns the weight of each training sample, for LoaderOptions::weights; null if all weigh the
// same, so that the mean loss is the sum divided by the number of samples. Requires
// balance_class_weights to have been called, and that a network has been built with the weights.
// Throws like balance_class_weights.
std::shared_ptr<const std::vector<float>> sample_weights(const Config& config,
                                                         const data::Dataset& training);

}  // namespace trireme::train
