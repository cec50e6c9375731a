// The normalization of inputs: what the network sees of a sample as it is stored.
#pragma once

#include "data/data.pb.h"
#include "data/dataset.h"

namespace trireme::data {

// Sets the scale, mean and deviation of samples to those that the configuration of their data
// states. Throws ConfigError if they are invalid or do not fit the channels of the samples.
void set_normalization(const DataConfig& config, SampleSpec& spec);

}  // namespace trireme::data
