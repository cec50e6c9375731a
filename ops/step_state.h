// The numbers that change from step to step. They live in device memory and are read by kernels, so
// that a captured step can be replayed without being encoded again.
#pragma once

#include <cstdint>

namespace trireme::ops {

struct StepState {
  int64_t step = 0;          // updates done before this one
  uint64_t seed = 0;         // of the run
  int64_t first_sample = 0;  // position of row 0 of this micro-batch within the global batch
  int32_t valid_rows = 0;    // rows of this micro-batch that are samples; the rest is padding
  float learning_rate = 0;
  // d(loss)/d(sample loss): 1 / weight of the global batch (see kMetricWeight), times the loss
  // scale.
  float loss_gradient_scale = 0;
};

// What the loss adds up over samples, and what the ranks add up over each other: the slots of a
// float32 vector that lies in front of the gradients, so that one sum serves both.
enum Metric : int {
  kMetricLoss,          // sum of the samples' losses
  kMetricTop1,          // samples whose label has the largest logit
  kMetricTop5,          // samples whose label is among the five largest
  kMetricSamples,       // valid samples seen
  kMetricStopRequests,  // ranks that were told to stop
  kMetricWeight,        // what the mean loss divides by: valid samples, or the sum of their weights
  kMetricCount = 16,    // one cache line
};

}  // namespace trireme::ops
