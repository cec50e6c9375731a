// Precision, recall and F1 score of each class, from counts that are summed over ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "trainer/base/evaluation_metrics.h"

namespace trireme::train {

// The predicted class of a sample whose logits are not all finite.
inline constexpr int kNoClass = -1;

// The true and the predicted class of a sample.
struct Classified {
  int label = 0;
  int predicted = 0;  // or kNoClass
};

// Returns whether each sample has exactly one class and the network's `outputs` values per sample
// are its logits.
bool is_single_label(const data::SampleSpec& spec, int64_t outputs);
// Classifies each row of a batch, in parallel on the CPU's threads. `logits` has shape
// [batch.rows, outputs]. If targets are class probabilities, the label is the most probable class.
std::vector<Classified> classify(const data::SampleSpec& spec, const data::Batch& batch,
                                 std::span<const float> logits, int64_t outputs);

// Sets the macro averages: unweighted means over the classes that have samples or are predicted, as
// scikit-learn's default. Leaves them unset if there is no such class.
void set_averages(std::span<const ClassScores> scores, EvaluationMetrics& metrics);

// Counts over this rank's samples. Memory is linear in the number of classes.
class ClassCounts {
 public:
  // Returns whether such samples have class scores: one class each, at most kMaxScoredClasses.
  static bool applies_to(const data::SampleSpec& spec, int64_t outputs);
  explicit ClassCounts(int64_t outputs) : counts_(static_cast<size_t>(outputs) * kKinds) {}

  void add(std::span<const Classified> samples);
  // Returns the scores of each class over the samples of all ranks. Counts are integers, so the
  // result does not depend on the number of ranks. Collective.
  std::vector<ClassScores> gather(comm::Communicator& communicator) const;

 private:
  enum Kind : size_t { kSupport, kPredicted, kTruePositives, kKinds };
  double& count(int label, Kind kind) {
    return counts_[static_cast<size_t>(label) * kKinds + kind];
  }

  std::vector<double> counts_;  // integers, exact up to 2^53
};

}  // namespace trireme::train
