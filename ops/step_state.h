// StepState: the values that change from step to step. They are in device memory and read by
// kernels, so that a captured step can be replayed without being encoded again.
#pragma once

#include <cstdint>

namespace trireme::ops {

struct StepState {
  int64_t step = 0;          // number of updates before this one
  uint64_t seed = 0;         // seed of the run
  int64_t first_sample = 0;  // place of row 0 of this micro-batch in the global batch
  int32_t valid_rows = 0;    // rows of this micro-batch that are samples; the rest is padding
  float learning_rate = 0;
  // d(loss)/d(loss of a label): 1 / labels, times the loss scale.
  float loss_gradient_scale = 0;
  // Number of labels of the global batch. The update replaces this divisor of the mean loss by the
  // actual one, which is known only when the metrics have been summed: kMetricWeight.
  float labels = 1;
  // If samples of the batch were skipped, the place of each row in the global batch, in the memory
  // of the device; otherwise null.
  const int64_t* places = nullptr;

  // Returns the place of a row in the global batch, which random numbers of the row are keyed by.
  constexpr int64_t place_of(int64_t row) const {
    return places ? places[row] : first_sample + row;
  }
};

// Metrics that the loss sums over labels and that are then summed over ranks. They are slots of an
// f32 vector that precedes the gradients in memory, so that one all-reduce sums both.
enum Metric : int {
  kMetricLoss,          // sum of the losses of labels
  kMetricTop1,          // labels that have the largest logit
  kMetricTop5,          // labels that are among the five largest logits
  kMetricSamples,       // valid samples seen
  kMetricStopRequests,  // ranks that received a stop request
  kMetricWeight,      // divisor of the mean loss: kMetricLabels, or the sum of the labels' weights
  kMetricLabels,      // labels of valid samples, without those that are ignored
  kMetricPlainLoss,   // kMetricLoss without label smoothing and class weights
  kMetricCount = 16,  // one cache line
};

}  // namespace trireme::ops
