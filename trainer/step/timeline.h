// The times of the parts of one profiled step on its device.
#pragma once

#include <vector>

#include "core/time_span.h"

namespace trireme::train {

// Times are in seconds since the step's start on the device: when the previous step is done there
// and the batch has arrived.
struct StepTimeline {
  double start = 0;                // start of the step, in seconds since StepProbe::origin_time
  TimeSpan copy;                   // copy of the batch to the device; may begin before the step
  std::vector<TimeSpan> forward;   // of each pass
  std::vector<TimeSpan> backward;  // of each pass
  TimeSpan exposed;                // waiting for gradient sums after the backward pass
  TimeSpan update;
  std::vector<TimeSpan> idle;    // waiting for other pipeline stages, in order
  std::vector<TimeSpan> layers;  // for each pass, those of StepProbe::ranges() in order
  std::vector<TimeSpan> sums;    // gradient sum of each bucket
  // With ZeRO, the all-gather of the parameters of each bucket.
  std::vector<TimeSpan> gathers = {};
};

}  // namespace trireme::train
