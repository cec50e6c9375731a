// Details of an evaluation of a classifier: the confusion matrix and the wrong predictions that the
// network was most confident of.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "trainer/step/class_scores.h"

namespace trireme::train {

// A misclassified sample.
struct Mistake {
  int64_t index = 0;  // index of the sample in the dataset
  std::string where;  // Dataset::where
  int label = 0;
  int predicted = 0;       // kNoClass if the logits are not finite
  double probability = 0;  // probability of the predicted class; NaN with kNoClass
  std::string png;         // the input before normalization, in base64; empty if it is not an image
};

struct EvaluationDetails {
  // Number of samples by true class (rows) and predicted class (columns), without those predicted
  // as kNoClass. Empty above kMaxConfusionClasses classes.
  std::vector<std::vector<int64_t>> confusion;
  std::vector<Mistake> mistakes;  // in the order of listed_before(), at most kMaxMistakes
};
inline constexpr int kMaxConfusionClasses = 200;
inline constexpr size_t kMaxMistakes = 24;

// Returns whether a mistake is listed before another one. Mistakes without a probability (NaN) come
// first, then those with the highest probability; ties are ordered by index.
bool listed_before(double probability, int64_t index, double other, int64_t other_index);

// Collects the details over this rank's batches.
class DetailsCollector {
 public:
  // Returns whether each sample has one class and the network has exactly one output per class.
  static bool applies_to(const data::SampleSpec& spec, int64_t outputs);
  explicit DetailsCollector(const data::SampleSpec& spec);

  // `logits` has shape [batch.rows, classes]; `samples` is the result of classify() for them.
  void add(const data::Batch& batch, std::span<const float> logits,
           std::span<const Classified> samples);
  // Returns the details over all ranks. Collective.
  EvaluationDetails gather(comm::Communicator& communicator, const data::Dataset& dataset);

 private:
  struct Found {
    double probability = 0;
    int64_t index = 0;
    int label = 0;
    int predicted = 0;
    std::vector<std::byte> input;

    // Orders by listed_before(), the same on all ranks.
    bool operator<(const Found& other) const {
      return listed_before(probability, index, other.probability, other.index);
    }
  };
  void add_mistake(Found found, const std::byte* input);
  void drop_all_but_most_confident(comm::Communicator& communicator);
  std::vector<Mistake> describe(const data::Dataset& dataset) const;

  data::SampleSpec spec_;
  std::vector<double> confusion_;  // [classes, classes], row-major
  std::vector<Found> found_;       // sorted, at most kMaxMistakes
};

}  // namespace trireme::train
