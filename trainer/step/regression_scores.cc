#include "trainer/step/regression_scores.h"

#include <algorithm>
#include <cmath>

#include "comm/control.h"
#include "core/parallel.h"

namespace trireme::train {
namespace {

constexpr size_t kOutputBlock = 256;  // outputs whose sums fit into the L1 cache

}  // namespace

void set_averages(std::span<const OutputScores> scores, EvaluationMetrics& metrics) {
  if (scores.empty()) return;
  const auto outputs = static_cast<double>(scores.size());
  double mae = 0, rmse = 0, r2 = 0;
  for (const OutputScores& output : scores) {
    mae += output.mae;
    rmse += output.rmse;
    r2 += output.r2.value_or(0);
  }
  metrics.mae = mae / outputs;
  metrics.rmse = rmse / outputs;
  const auto has_r2 = [](const OutputScores& output) { return output.r2.has_value(); };
  if (std::ranges::all_of(scores, has_r2)) metrics.r2 = r2 / outputs;
}

bool RegressionSums::applies_to(const data::SampleSpec& spec, int64_t outputs) {
  return spec.classes == 0 && spec.target.dtype == DType::kF32 &&
         spec.target.shape.elements() == outputs;
}

// Adds a sample; `count` is the number of samples including this one.
void RegressionSums::add(Output& output, float prediction, float target, int64_t count) {
  const double error = double{prediction} - double{target};
  output.absolute += std::abs(error);
  output.squared += error * error;
  if (count == 1) output.first = double{target};
  const double shifted = double{target} - output.first;
  const double difference = shifted - output.mean;
  output.mean += difference / static_cast<double>(count);
  output.spread += difference * (shifted - output.mean);
}

void RegressionSums::add(std::span<const float> predictions, std::span<const float> targets) {
  const size_t outputs = outputs_.size();
  const size_t rows = targets.size() / outputs;
  const size_t blocks = (outputs + kOutputBlock - 1) / kOutputBlock;
  parallel_for(static_cast<int64_t>(blocks), [&](int64_t first, int64_t last) {
    for (size_t block = static_cast<size_t>(first); block < static_cast<size_t>(last); ++block) {
      const size_t end = std::min(outputs, (block + 1) * kOutputBlock);
      for (size_t row = 0; row < rows; ++row) {
        const int64_t count = count_ + static_cast<int64_t>(row) + 1;
        for (size_t i = block * kOutputBlock; i < end; ++i) {
          add(outputs_[i], predictions[row * outputs + i], targets[row * outputs + i], count);
        }
      }
    }
  });
  count_ += static_cast<int64_t>(rows);
}

// Returns the number of samples on all ranks and sets the lowest rank that has any.
double RegressionSums::sum_of_counts(comm::Communicator& communicator,
                                     int& first_with_samples) const {
  std::vector<double> counts(static_cast<size_t>(communicator.size()));
  counts[static_cast<size_t>(communicator.rank())] = static_cast<double>(count_);
  comm::sum(communicator, counts);
  const auto found = std::ranges::find_if(counts, [](double count) { return count > 0; });
  first_with_samples = static_cast<int>(found - counts.begin());
  double all = 0;
  for (const double count : counts) all += count;
  return all;
}

std::vector<OutputScores> RegressionSums::gather(comm::Communicator& communicator) const {
  int owner = 0;
  const double samples = sum_of_counts(communicator, owner);
  if (samples == 0) return {};
  const size_t outputs = outputs_.size();
  // All ranks subtract the same target, so that the spread of equal targets is exactly 0.
  std::vector<double> reference(outputs);
  if (communicator.rank() == owner) {
    std::ranges::transform(outputs_, reference.begin(), &Output::first);
  }
  comm::sum(communicator, reference);
  const auto count = static_cast<double>(count_);
  const auto mean = [&](size_t i) { return outputs_[i].mean + (outputs_[i].first - reference[i]); };

  std::vector<double> sums;  // for each output: |error|, error^2, target
  for (size_t i = 0; i < outputs; ++i) {
    const double target_sum = count_ == 0 ? 0 : count * mean(i);
    sums.insert(sums.end(), {outputs_[i].absolute, outputs_[i].squared, target_sum});
  }
  comm::sum(communicator, sums);

  std::vector<double> spread(outputs);
  for (size_t i = 0; i < outputs && count_ > 0; ++i) {
    const double difference = mean(i) - sums[3 * i + 2] / samples;
    spread[i] = outputs_[i].spread + count * difference * difference;
  }
  comm::sum(communicator, spread);

  std::vector<OutputScores> scores;
  for (size_t i = 0; i < outputs; ++i) {
    const double squared = sums[3 * i + 1];
    OutputScores& output = scores.emplace_back();
    output.mae = sums[3 * i] / samples;
    output.rmse = std::sqrt(squared / samples);
    if (spread[i] != 0) output.r2 = 1 - squared / spread[i];
  }
  return scores;
}

}  // namespace trireme::train
