#include "trainer/step/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace trireme::train {
namespace {

constexpr int kMaxStages = 16;
constexpr int64_t kMaxMicroBatches = 64;

// Calls f(stages, micro_batches) for all numbers.
template <class F>
void for_all(F f) {
  for (int stages = 1; stages <= kMaxStages; ++stages) {
    for (int64_t micro = 1; micro <= kMaxMicroBatches; ++micro) f(stages, micro);
  }
}

TEST(PipelineSchedule, RunsEveryMicroBatchForwardThenBackwardInOrder) {
  for_all([](int stages, int64_t micro) {
    for (int stage = 0; stage < stages; ++stage) {
      int64_t forward = 0, backward = 0;
      for (const PipelineAction& action : pipeline_schedule(stage, stages, micro)) {
        ASSERT_EQ(action.micro_batch, action.forward ? forward : backward);
        ++(action.forward ? forward : backward);
        ASSERT_LE(backward, forward);
      }
      ASSERT_EQ(forward, micro);
      ASSERT_EQ(backward, micro);
    }
  });
}

TEST(PipelineSchedule, LimitsMicroBatchesInFlight) {
  for_all([](int stages, int64_t micro) {
    for (int stage = 0; stage < stages; ++stage) {
      int64_t in_flight = 0, max = 0;
      for (const PipelineAction& action : pipeline_schedule(stage, stages, micro)) {
        in_flight += action.forward ? 1 : -1;
        max = std::max(max, in_flight);
      }
      ASSERT_EQ(max, micro_batches_in_flight(stage, stages, micro));
      ASSERT_LE(max, stages - stage);
    }
  });
}

TEST(PipelineSchedule, TheLastStageStartsBackwardAtOnce) {
  for_all([](int stages, int64_t micro) {
    const auto actions = pipeline_schedule(stages - 1, stages, micro);
    ASSERT_EQ(actions[0], (PipelineAction{true, 0}));
    ASSERT_EQ(actions[1], (PipelineAction{false, 0}));
  });
}

// Runs the schedules of all stages with transfers that block the sender until the receiver takes
// them. Returns the time of the step if each pass of a stage takes one unit; -1 after a deadlock.
int64_t simulate(int stages, int64_t micro) {
  std::vector<std::vector<PipelineAction>> actions;
  for (int s = 0; s < stages; ++s) actions.push_back(pipeline_schedule(s, stages, micro));
  std::vector<size_t> next(static_cast<size_t>(stages));
  // When each pass has ended, by stage: -1 if it has not.
  std::vector<std::array<std::vector<int64_t>, 2>> ended(
      static_cast<size_t>(stages), {std::vector<int64_t>(static_cast<size_t>(micro), -1),
                                    std::vector<int64_t>(static_cast<size_t>(micro), -1)});
  std::vector<int64_t> free_at(static_cast<size_t>(stages));
  for (bool progress = true; progress;) {
    progress = false;
    for (int s = 0; s < stages; ++s) {
      const auto stage = static_cast<size_t>(s);
      if (next[stage] == actions[stage].size()) continue;
      const auto [forward, m] = actions[stage][next[stage]];
      const auto index = static_cast<size_t>(m);
      const int from = forward ? s - 1 : s + 1;
      int64_t start = free_at[stage];
      if (from >= 0 && from < stages) {
        const int64_t input = ended[static_cast<size_t>(from)][forward ? 0 : 1][index];
        if (input < 0) continue;
        start = std::max(start, input);
      }
      free_at[stage] = ended[stage][forward ? 0 : 1][index] = start + 1;
      ++next[stage];
      progress = true;
    }
  }
  for (size_t s = 0; s < next.size(); ++s) {
    if (next[s] < actions[s].size()) return -1;
  }
  return *std::ranges::max_element(free_at);
}

TEST(PipelineSchedule, EndsWithThePredictedBubble) {
  for_all([](int stages, int64_t micro) {
    const int64_t time = simulate(stages, micro);
    ASSERT_EQ(time, 2 * (micro + stages - 1)) << stages << " stages, " << micro;
    const double idle = 1 - static_cast<double>(2 * micro) / static_cast<double>(time);
    ASSERT_NEAR(idle, pipeline_bubble(stages, micro), 1e-12);
  });
}

}  // namespace
}  // namespace trireme::train
