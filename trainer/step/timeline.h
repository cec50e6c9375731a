// When the parts of one step happened on its device.
#pragma once

#include <vector>

#include "core/time_span.h"

namespace trireme::train {

// Times are counted from the step's first moment on the device, when the step before was done there
// and its batch had come.
struct StepTimeline {
  double began = 0;                // that moment, in seconds after the probe was made
  TimeSpan copy;                   // of the batch to the device; may lie before it
  std::vector<TimeSpan> forward;   // of each pass
  std::vector<TimeSpan> backward;  // likewise
  TimeSpan exposed;                // waiting for sums after backward had ended
  TimeSpan update;
  std::vector<TimeSpan> stretches;  // of each pass: those of LayerStretches, in their order
  std::vector<TimeSpan> sums;       // of each bucket
};

}  // namespace trireme::train
