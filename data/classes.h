// Class weights and balanced sampling, from labels that are known without decoding the samples.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/data.pb.h"
#include "data/dataset.h"

namespace trireme::data {

// Returns the label of each sample. `field` is the configuration field that needs them. Throws
// ConfigError naming it if samples do not have exactly one class each or are too many to list, and
// DataError if a label is not a valid class.
std::vector<int32_t> labels_for(const Dataset& dataset, const std::string& field);

// Returns a weight for each class, samples / (classes * samples of the class), as scikit-learn's
// class_weight="balanced". Throws as labels_for does, and ConfigError if a class has no samples.
std::vector<float> balanced_weights(const Dataset& dataset, const std::string& field);

// Returns the number of samples of each class; `labels` are in [0, classes).
std::vector<int64_t> class_counts(std::span<const int32_t> labels, int classes);

// Return a line about classes that are probably a mistake, or "": those without samples in a part
// of the data ("training" or "evaluation"), and those whose names differ only in case or blanks.
// `names` is empty if classes have no names.
std::string empty_classes(std::span<const int64_t> counts, const std::vector<std::string>& names,
                          const std::string& part);
std::string similar_classes(const std::vector<std::string>& names);
// Returns these lines about the samples of a configuration; none if labels are not known without
// reading the samples, or are generated.
std::vector<std::string> class_problems(const DataConfig& config, const Dataset& training,
                                        const Dataset& evaluation);

// Draws samples with replacement. All classes that have samples are equally likely, and so are all
// samples of a class, as with PyTorch's WeightedRandomSampler and the inverse class counts as
// weights. Takes 8 bytes per sample.
class BalancedDraws {
 public:
  // `labels` holds the label of each sample, in [0, classes).
  BalancedDraws(const std::vector<int32_t>& labels, int classes);
  // Returns the sample at a position of an epoch, a pure function of the arguments.
  int64_t operator()(uint64_t seed, uint64_t epoch, int64_t position) const;

 private:
  std::vector<int64_t> samples_;  // sorted by class
  std::vector<int64_t> begins_;   // offset in samples_ of each nonempty class, and the end
};

}  // namespace trireme::data
