// MAE, RMSE and R2 of each output of a regression, from sums that ranks add up.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "data/dataset.h"
#include "trainer/base/evaluation_metrics.h"

namespace trireme::train {

// Of one output, as scikit-learn defines them.
struct OutputScores {
  double mae = 0;   // mean of |prediction - target|
  double rmse = 0;  // square root of the mean of (prediction - target)^2
  // 1 - sum of (prediction - target)^2 / sum of (target - mean target)^2. Nothing where the targets
  // are all the same, a single one included: there is nothing to explain.
  std::optional<double> r2 = {};
};

// Sets MAE, RMSE and R2: unweighted means over the outputs, as scikit-learn does by default. No R2
// where an output has none; nothing without outputs.
void set_averages(std::span<const OutputScores> scores, EvaluationMetrics& metrics);

// Sums in double precision over this rank's samples. The spread of the targets is collected around
// their mean (Welford; ranks are joined by the formula of Chan, Golub and LeVeque, Stanford
// STAN-CS-79-773), so that targets which are far from 0 cost R2 no digits: any number of ranks
// gives the same but for rounding, about 1e-12 of each sum over a million samples.
class RegressionSums {
 public:
  // Whether `outputs` numbers a sample are predictions of its target.
  static bool applies_to(const data::SampleSpec& spec, int64_t outputs);
  explicit RegressionSums(int64_t outputs) : outputs_(static_cast<size_t>(outputs)) {}

  // Both are [rows, outputs]. Runs on the threads of the CPU.
  void add(std::span<const float> predictions, std::span<const float> targets);
  // Of each output, over the samples of all ranks, which call it together. Empty without samples.
  std::vector<OutputScores> gather(comm::Communicator& communicator) const;

 private:
  struct Output {
    double absolute = 0;  // sum of |error|
    double squared = 0;   // sum of error^2
    // Of the targets, less `first`.
    double first = 0;   // this rank's first target
    double mean = 0;    // of those so far
    double spread = 0;  // sum of squared differences from the mean
  };
  static void add(Output& output, float prediction, float target, int64_t count);
  double sum_of_counts(comm::Communicator& communicator, int& first_with_samples) const;

  std::vector<Output> outputs_;
  int64_t count_ = 0;
};

}  // namespace trireme::train
