// Class weights of the loss: model.zoo.class_weights, or class_weights of the network's last layer.
#pragma once

#include <vector>

#include "data/dataset.h"
#include "trainer/config/config.h"

namespace trireme::train {

// Returns the weight of each class; empty if all are 1.
std::vector<float> class_weights(const RunConfig& run);
// Returns whether label smoothing or class weights make the loss that training minimizes another
// one than the negative log likelihood of labels.
bool reweights_loss(const RunConfig& run);
// Returns whether labels of one of the classes do not count, see ignore_index.
bool ignores_class(const RunConfig& run, int64_t classes);

// Replaces balanced_class_weights by class_weights computed from the training samples. Throws
// ConfigError, with the location in the configuration file, if the samples do not have one label
// each.
void balance_class_weights(Config& config, const data::Dataset& training);

}  // namespace trireme::train
