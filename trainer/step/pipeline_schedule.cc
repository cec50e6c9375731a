#include "trainer/step/pipeline_schedule.h"

#include <algorithm>

namespace trireme::train {

std::vector<PipelineAction> pipeline_schedule(int stage, int stages, int64_t micro_batches) {
  const int64_t in_flight = micro_batches_in_flight(stage, stages, micro_batches);
  std::vector<PipelineAction> actions;
  for (int64_t m = 0; m < in_flight - 1; ++m) actions.push_back({true, m});
  for (int64_t m = 0; m < micro_batches; ++m) {
    if (m + in_flight - 1 < micro_batches) actions.push_back({true, m + in_flight - 1});
    actions.push_back({false, m});
  }
  return actions;
}

int64_t micro_batches_in_flight(int stage, int stages, int64_t micro_batches) {
  return std::min<int64_t>(stages - stage, micro_batches);
}

double pipeline_bubble(int stages, int64_t micro_batches) {
  return static_cast<double>(stages - 1) / static_cast<double>(micro_batches + stages - 1);
}

}  // namespace trireme::train
