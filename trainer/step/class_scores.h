// Precision, recall and F1 of each class, from counts that ranks add up.
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

// What a network predicts whose logits are not finite.
inline constexpr int kNothing = -1;

// Which class a sample is of, and which is predicted.
struct Classified {
  int label = 0;
  int predicted = 0;  // or kNothing
};

// Whether each sample is of one class, of which `outputs` numbers a sample are the logits.
bool has_one_class(const data::SampleSpec& spec, int64_t outputs);
// Of each row, on the threads of the CPU. `logits` are [batch.rows, outputs]. Where targets are
// probabilities of classes the label is the most probable one.
std::vector<Classified> classify(const data::SampleSpec& spec, const data::Batch& batch,
                                 std::span<const float> logits, int64_t outputs);

// Sets the macro averages: unweighted means over the classes that have samples or are predicted, as
// scikit-learn does by default; nothing where there is no such class.
void set_averages(std::span<const ClassScores> scores, EvaluationMetrics& metrics);

// Counts of this rank's samples. Memory grows with the classes, not with their square.
class ClassCounts {
 public:
  // Whether there are such scores, of at most kMaxScoredClasses.
  static bool applies_to(const data::SampleSpec& spec, int64_t outputs);
  explicit ClassCounts(int64_t outputs) : counts_(static_cast<size_t>(outputs) * kKinds) {}

  void add(std::span<const Classified> samples);
  // Of each output, over the samples of all ranks, which call it together. Counts are whole
  // numbers, so that any number of ranks gives the same.
  std::vector<ClassScores> gather(comm::Communicator& communicator) const;

 private:
  enum Kind : size_t { kSupport, kPredicted, kTruePositives, kKinds };
  double& count(int label, Kind kind) {
    return counts_[static_cast<size_t>(label) * kKinds + kind];
  }

  std::vector<double> counts_;  // whole numbers, exact up to 2^53
};

}  // namespace trireme::train
