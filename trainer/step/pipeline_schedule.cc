#include "trainer/step/pipeline_schedule.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace trireme::train {
namespace {

// The time of a pass in the simulation. A backward pass computes two gradients per product.
constexpr int64_t kForwardTime = 1;
constexpr int64_t kBackwardTime = 2;

// When the passes of the micro-batches end on one stage.
struct PassEnds {
  std::vector<int64_t> forward, backward;
};

// Returns the ends of all passes by stage, if transfers take no time.
std::vector<PassEnds> simulate(int stages, int64_t micro_batches) {
  struct Stage {
    std::vector<PipelineAction> actions;
    size_t next = 0;
    int64_t time = 0;
  };
  std::vector<Stage> all;
  for (int s = 0; s < stages; ++s) all.push_back({pipeline_schedule(s, stages, micro_batches)});
  const std::vector<int64_t> unknown(static_cast<size_t>(micro_batches), -1);
  std::vector<PassEnds> ends(all.size(), {unknown, unknown});
  // Returns when the input of an action is there, -1 if that is not known yet.
  const auto input_time = [&](size_t s, const PipelineAction& action) -> int64_t {
    const auto m = static_cast<size_t>(action.micro_batch);
    if (action.forward) return s == 0 ? 0 : ends[s - 1].forward[m];
    return s + 1 == all.size() ? 0 : ends[s + 1].backward[m];
  };
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t s = 0; s < all.size(); ++s) {
      Stage& stage = all[s];
      for (; stage.next < stage.actions.size(); ++stage.next, progress = true) {
        const PipelineAction& action = stage.actions[stage.next];
        const int64_t input = input_time(s, action);
        if (input < 0) break;
        stage.time = std::max(stage.time, input) + (action.forward ? kForwardTime : kBackwardTime);
        auto& of_stage = action.forward ? ends[s].forward : ends[s].backward;
        of_stage[static_cast<size_t>(action.micro_batch)] = stage.time;
      }
    }
  }
  return ends;
}

}  // namespace

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

std::vector<StageTransfer> transfer_order(int stage, int stages, int64_t micro_batches) {
  const std::vector<PassEnds> ends = simulate(stages, micro_batches);
  // Of transfers at the same time, those between stages 2k and 2k + 1 are first, so that none waits
  // for more than one of them.
  using Key = std::tuple<int64_t, bool, StageTransfer::Kind>;
  std::vector<std::pair<Key, StageTransfer>> keyed;
  const auto add = [&](StageTransfer::Kind kind, const std::vector<int64_t>& times, int first) {
    for (int64_t m = 0; m < micro_batches; ++m) {
      const int64_t time = times[static_cast<size_t>(m)];
      keyed.push_back({{time, first % 2 == 1, kind}, {kind, m}});
    }
  };
  const auto s = static_cast<size_t>(stage);
  if (stage > 0) {
    add(StageTransfer::kReceiveInput, ends[s - 1].forward, stage - 1);
    add(StageTransfer::kSendGradient, ends[s].backward, stage - 1);
  }
  if (stage + 1 < stages) {
    add(StageTransfer::kSendOutput, ends[s].forward, stage);
    add(StageTransfer::kReceiveGradient, ends[s + 1].backward, stage);
  }
  std::ranges::sort(keyed, {}, [](const auto& each) { return each.first; });
  std::vector<StageTransfer> order;
  for (const auto& [key, transfer] : keyed) order.push_back(transfer);
  return order;
}

double pipeline_bubble(int stages, int64_t micro_batches) {
  return static_cast<double>(stages - 1) / static_cast<double>(micro_batches + stages - 1);
}

}  // namespace trireme::train
