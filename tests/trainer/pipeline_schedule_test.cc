#include "trainer/step/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
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

constexpr int64_t kGradientBuffers = 2;  // as in StageExchange

// One step of all stages in which a stage queues its transfers and passes in order, passes and
// transfers run concurrently, and transfers run one after the other, each when both stages reach
// it.
class SerialTransfers {
 public:
  using Order = std::vector<StageTransfer>;
  SerialTransfers(int stages, int64_t micro, const std::vector<Order>& orders) {
    for (int s = 0; s < stages; ++s) {
      stages_.push_back({.passes = pipeline_schedule(s, stages, micro),
                         .order = orders[static_cast<size_t>(s)],
                         .in_flight = micro_batches_in_flight(s, stages, micro)});
    }
  }

  // Returns whether everything has run in the end.
  bool run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t s = 0; s < stages_.size(); ++s) progress |= pass(s) || transfer(s);
    }
    return std::ranges::all_of(stages_, [](const Stage& stage) {
      return stage.next_pass == stage.passes.size() && stage.next == stage.order.size();
    });
  }

 private:
  struct Stage {
    std::vector<PipelineAction> passes;
    Order order;
    int64_t in_flight = 0;
    size_t next_pass = 0;
    size_t next = 0;                        // transfer
    int64_t forward = 0, backward = 0;      // passes done
    std::array<int64_t, 4> transfers = {};  // done, by kind
  };
  bool is_last(size_t s) const { return s + 1 == stages_.size(); }

  bool pass(size_t s) {
    Stage& stage = stages_[s];
    if (stage.next_pass == stage.passes.size()) return false;
    const auto [forward, m] = stage.passes[stage.next_pass];
    const auto& done = stage.transfers;
    if (forward) {
      if (s > 0 && done[StageTransfer::kReceiveInput] <= m) return false;
      if (!is_last(s) && done[StageTransfer::kSendOutput] <= m - stage.in_flight) return false;
    } else {
      if (!is_last(s) && done[StageTransfer::kReceiveGradient] <= m) return false;
      if (s > 0 && done[StageTransfer::kSendGradient] <= m - kGradientBuffers) return false;
    }
    ++(forward ? stage.forward : stage.backward);
    ++stage.next_pass;
    return true;
  }

  // Returns whether the passes that the next transfer depends on are done.
  bool is_ready(const Stage& stage) const {
    if (stage.next == stage.order.size()) return false;
    const auto [kind, m] = stage.order[stage.next];
    switch (kind) {
      case StageTransfer::kReceiveInput:
        return stage.backward > m - (stage.in_flight + 1);
      case StageTransfer::kSendOutput:
        return stage.forward > m;
      case StageTransfer::kReceiveGradient:
        return stage.backward > m - kGradientBuffers;
      case StageTransfer::kSendGradient:
        return stage.backward > m;
    }
    return false;
  }

  // Runs a transfer between the stage and the next one.
  bool transfer(size_t s) {
    if (is_last(s)) return false;
    Stage& stage = stages_[s];
    Stage& peer = stages_[s + 1];
    if (!is_ready(stage) || !is_ready(peer)) return false;
    const auto [kind, m] = stage.order[stage.next];
    const bool gradient = kind == StageTransfer::kReceiveGradient;
    if (kind != StageTransfer::kSendOutput && !gradient) return false;
    const auto matching = gradient ? StageTransfer::kSendGradient : StageTransfer::kReceiveInput;
    if (peer.order[peer.next] != StageTransfer{matching, m}) return false;
    for (Stage* each : {&stage, &peer}) ++each->transfers[each->order[each->next++].kind];
    return true;
  }

  std::vector<Stage> stages_;
};

std::vector<SerialTransfers::Order> orders_of(int stages, int64_t micro) {
  std::vector<SerialTransfers::Order> orders;
  for (int s = 0; s < stages; ++s) orders.push_back(transfer_order(s, stages, micro));
  return orders;
}

TEST(TransferOrder, NeverDeadlocksIfTransfersBlock) {
  for_all([](int stages, int64_t micro) {
    ASSERT_TRUE(SerialTransfers(stages, micro, orders_of(stages, micro)).run())
        << stages << " stages, " << micro;
  });
}

// What a rank queues in a step: its passes, and each transfer as soon as those before it have been
// queued and the passes that it depends on.
struct Queued {
  std::optional<StageTransfer> transfer;  // otherwise a pass
};
std::vector<Queued> queue_of(int stage, int stages, int64_t micro) {
  const auto order = transfer_order(stage, stages, micro);
  const int64_t in_flight = micro_batches_in_flight(stage, stages, micro);
  std::vector<Queued> queue;
  int64_t forward = 0, backward = 0;
  std::array<int64_t, 4> transfers{};
  const auto add_transfers = [&] {
    for (size_t next = std::accumulate(transfers.begin(), transfers.end(), size_t{0});
         next < order.size(); ++next) {
      const auto [kind, m] = order[next];
      const bool can_be_queued = kind == StageTransfer::kReceiveInput ? m < backward + in_flight + 1
                                 : kind == StageTransfer::kSendOutput ? m < forward
                                 : kind == StageTransfer::kReceiveGradient
                                     ? m < backward + kGradientBuffers
                                     : m < backward;
      if (!can_be_queued) return;
      queue.push_back({order[next]});
      ++transfers[kind];
    }
  };
  add_transfers();
  for (const auto& [is_forward, m] : pipeline_schedule(stage, stages, micro)) {
    // What the pass waits for has been queued.
    if (is_forward) {
      EXPECT_TRUE(stage == 0 || transfers[StageTransfer::kReceiveInput] > m);
      EXPECT_TRUE(stage + 1 == stages || transfers[StageTransfer::kSendOutput] > m - in_flight);
    } else {
      EXPECT_TRUE(stage + 1 == stages || transfers[StageTransfer::kReceiveGradient] > m);
      EXPECT_TRUE(stage == 0 || transfers[StageTransfer::kSendGradient] > m - kGradientBuffers);
    }
    ++(is_forward ? forward : backward);
    queue.push_back({});
    add_transfers();
  }
  return queue;
}

// CUDA does not promise that work runs concurrently: a GPU may run all that is queued in its order.
TEST(TransferOrder, NeverDeadlocksIfPassesWaitForTransfersToo) {
  for_all([](int stages, int64_t micro) {
    std::vector<std::vector<Queued>> queues;
    for (int s = 0; s < stages; ++s) queues.push_back(queue_of(s, stages, micro));
    std::vector<size_t> next(queues.size());
    const auto front = [&](size_t s) {
      return next[s] < queues[s].size() ? &queues[s][next[s]] : nullptr;
    };
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t s = 0; s < queues.size(); ++s) {
        for (; front(s) && !front(s)->transfer; ++next[s]) progress = true;
        if (s == 0 || !front(s) || !front(s - 1) || !front(s - 1)->transfer) continue;
        const auto [kind, m] = *front(s)->transfer;
        const bool gradient = kind == StageTransfer::kSendGradient;
        if (!gradient && kind != StageTransfer::kReceiveInput) continue;
        const auto matching =
            gradient ? StageTransfer::kReceiveGradient : StageTransfer::kSendOutput;
        if (*front(s - 1)->transfer != StageTransfer{matching, m}) continue;
        ++next[s];
        ++next[s - 1];
        progress = true;
      }
    }
    for (size_t s = 0; s < queues.size(); ++s) {
      ASSERT_EQ(next[s], queues[s].size()) << stages << " stages, " << micro;
    }
  });
}

// The simulation would find one: a stage that receives before it sends blocks the others.
TEST(TransferOrder, AnotherOrderDeadlocks) {
  auto orders = orders_of(2, 4);
  std::ranges::stable_sort(orders[0], {}, [](const StageTransfer& transfer) {
    return transfer.kind == StageTransfer::kSendOutput;
  });
  EXPECT_FALSE(SerialTransfers(2, 4, orders).run());
}

TEST(TransferOrder, HasEveryTransferOfAStage) {
  for_all([](int stages, int64_t micro) {
    for (int s = 0; s < stages; ++s) {
      std::array<int64_t, 4> next{};
      for (const auto& [kind, m] : transfer_order(s, stages, micro)) ASSERT_EQ(m, next[kind]++);
      const int64_t before = s > 0 ? micro : 0;
      const int64_t after = s + 1 < stages ? micro : 0;
      ASSERT_EQ(next, (std::array<int64_t, 4>{before, after, after, before}));
    }
  });
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
