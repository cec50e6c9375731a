// What one step in flight reads and writes beside the model.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/device.h"
#include "data/loader.h"
#include "model/context.h"
#include "ops/loss_scale.h"
#include "ops/step_state.h"
#include "trainer/step/batch_plan.h"
#include "trainer/step/marks.h"

namespace trireme::train {

// Bytes of one sample.
struct SampleBytes {
  size_t input = 0;
  size_t target = 0;
};

// Addresses are fixed, so that a recording of the step can be replayed.
struct StepSlot {
  // What the host tells the step, in front of a StepState for each pass...
  struct Head {
    std::array<float, ops::kMetricCount> metrics;  // that the sums begin with
  };
  // ...and the step tells the host.
  struct Tail {
    std::array<float, ops::kMetricCount> metrics;
    ops::LossScale scale_before, scale_after;
  };

  // `running_bytes`: of all running values. The device outlives the slot.
  StepSlot(int index, Device& device, const BatchPlan& plan, SampleBytes sample,
           size_t running_bytes);
  ~StepSlot() { recording.reset(); }  // which uses all the rest

  // Writes what the step in flight, `step` and `passes`, is about to the host's memory.
  void describe(const data::Batch& batch, uint64_t seed, float learning_rate, bool stop_requested);
  // Queues the copy of that, and of a batch that is staged, to the device.
  void load(const data::Batch& batch, Stream& copies);
  // Queues the copy of what describe() wrote.
  void load_head(Stream& stream) const;
  // A context for each pass; they share the activations. All of it outlives the slot.
  void make_contexts(const model::Program& program, const model::ModelArrays& arrays,
                     void* activations);
  // That of a pass, bound to its rows of the batch that was loaded.
  model::Context& pass(int64_t i);
  ops::StepState* state(int64_t i) const;

  // Whether batches are copied to the device. The CPU reads them where they are.
  bool staged() const { return inputs_.data() != nullptr; }
  size_t batch_bytes() const { return inputs_.bytes() + targets_.bytes(); }
  const void* head() const { return head_.data(); }
  // In host memory; the step writes it.
  Tail& tail() const { return *tail_.as<Tail>(); }

  const int index;
  const Buffer running_before;          // the step: its running values
  const std::unique_ptr<Event> loaded;  // the head and a batch that is staged
  const std::unique_ptr<Event> done;
  StepMarks marks;
  std::unique_ptr<Recording> recording;  // null: none yet
  int64_t runs = 0;                      // steps launched
  // Of the step in flight:
  int64_t step = 0;
  int64_t passes = 0;
  bool probed = false;

 private:
  void copy_passes(const Buffer& to, const std::byte* from, size_t sample_bytes,
                   Stream& copies) const;
  // Between two passes.
  size_t stride(size_t sample_bytes) const;

  Device& device_;
  const BatchPlan plan_;
  const SampleBytes sample_;
  Buffer host_head_, head_;
  Buffer tail_;
  Buffer inputs_, targets_;  // of each pass, aligned
  std::vector<model::Context> contexts_;
  const std::byte* read_inputs_ = nullptr;
  const std::byte* read_targets_ = nullptr;
};

}  // namespace trireme::train
