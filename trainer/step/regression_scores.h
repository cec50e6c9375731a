// MAE, RMSE and R2 of each output of a regression, from sums over all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "data/dataset.h"
#include "trainer/base/evaluation_metrics.h"

namespace trireme::train {

// The scores of one output, as scikit-learn defines them.
struct OutputScores {
  double mae = 0;   // mean of |prediction - target|
  double rmse = 0;  // square root of the mean of (prediction - target)^2
  // 1 - sum of (prediction - target)^2 / sum of (target - mean target)^2. Unset if all targets are
  // equal (or there is only one), since the denominator is 0.
  std::optional<double> r2 = {};
};

// Sets MAE, RMSE and R2 to unweighted means over the outputs, as scikit-learn's default. Leaves R2
// unset if an output has none, and all three if there are no outputs.
void set_averages(std::span<const OutputScores> scores, EvaluationMetrics& metrics);

// Sums in double precision over this rank's samples. The squared deviations of the targets are
// accumulated around their running mean (Welford) and combined over ranks by the formula of Chan,
// Golub and LeVeque (Stanford STAN-CS-79-773), so R2 keeps its precision for targets far from 0.
// Results for different numbers of ranks differ only by rounding, about 1e-12 of each sum over a
// million samples.
class RegressionSums {
 public:
  // Returns whether the network's `outputs` values per sample are predictions of its target.
  static bool applies_to(const data::SampleSpec& spec, int64_t outputs);
  explicit RegressionSums(int64_t outputs) : outputs_(static_cast<size_t>(outputs)) {}

  // Both have shape [rows, outputs]. Runs on the CPU's threads.
  void add(std::span<const float> predictions, std::span<const float> targets);
  // Returns the scores of each output over the samples of all ranks; empty if there are no samples.
  // Collective.
  std::vector<OutputScores> gather(comm::Communicator& communicator) const;

 private:
  struct Output {
    double absolute = 0;  // sum of |error|
    double squared = 0;   // sum of error^2
    double first = 0;     // this rank's first target
    double mean = 0;      // mean of target - first
    double spread = 0;    // sum of (target - mean target)^2
  };
  static void add(Output& output, float prediction, float target, int64_t count);
  double sum_of_counts(comm::Communicator& communicator, int& first_with_samples) const;

  std::vector<Output> outputs_;
  int64_t count_ = 0;
};

}  // namespace trireme::train
