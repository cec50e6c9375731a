// The weights of the classes in the loss: model.zoo.class_weights, or those of the last layer.
#pragma once

#include <memory>
#include <vector>

#include "data/dataset.h"
#include "trainer/config/config.h"

namespace trireme::train {

// Of each class; empty: all are 1.
std::vector<float> class_weights(const RunConfig& run);

// Puts numbers in the place of balanced_class_weights: those of the training samples. Throws
// ConfigError, placed in the configuration file, where they do not exist.
void balance_class_weights(Config& config, const data::Dataset& training);

// For LoaderOptions::weights, once numbers are in place and a network has been built with them: of
// each training sample; null where the mean loss divides by the number of samples. Throws as above.
std::shared_ptr<const std::vector<float>> sample_weights(const Config& config,
                                                         const data::Dataset& training);

}  // namespace trireme::train
