// Samples by their class, which is known without decoding them: for class weights and balanced
// sampling.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace trireme::data {

// The label of each sample. Throws ConfigError, naming the field that asks for them, where samples
// have no class of their own or are too many to be listed, and DataError where one is no class.
std::vector<int32_t> labels_for(const Dataset& dataset, const std::string& field);

// Of each class samples / (classes * samples of the class), as scikit-learn's "balanced". Throws
// as labels_for does, and ConfigError where a class has no samples.
std::vector<float> balanced_weights(const Dataset& dataset, const std::string& field);

// Draws samples with replacement: each class that has samples is as likely as another, and each
// sample of a class as another of it (as PyTorch's WeightedRandomSampler with the inverse of the
// classes' counts as weights). Takes 8 bytes a sample.
class BalancedDraws {
 public:
  // `labels` are those of all samples, in [0, classes).
  BalancedDraws(const std::vector<int32_t>& labels, int classes);
  // The sample at a position of an epoch, a pure function of these three.
  int64_t operator()(uint64_t seed, uint64_t epoch, int64_t position) const;

 private:
  std::vector<int64_t> samples_;  // by class
  std::vector<int64_t> begins_;   // in samples_: of each class that has some, and the end
};

}  // namespace trireme::data
