// Class weights of the loss: model.zoo.class_weights, or class_weights of the network's last layer.
#pragma once

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

}  // namespace trireme::train
