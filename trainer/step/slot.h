// Memory, events and contexts of one step in flight.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/device.h"
#include "data/loader.h"
#include "model/context.h"
#include "ops/loss_scale.h"
#include "ops/step_state.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/step/batch_plan.h"
#include "trainer/step/carried_states.h"
#include "trainer/step/step_timer.h"

namespace trireme::train {

// The size of one sample.
struct SampleSize {
  size_t input = 0;    // bytes
  size_t target = 0;   // bytes
  int64_t labels = 1;  // T for tokens, 1 otherwise
};

// One of the slots that consecutive steps use in turn. Addresses never change, so that a recording
// of the step can be replayed.
struct StepSlot {
  // Copied from the host to the device before the step, followed by a StepState for each pass and
  // by the place of each row, see StepState::places.
  struct Header {
    std::array<float, ops::kMetricCount> metrics;  // initial values of the sums
  };
  // Copied from the device to the host at the end of the step.
  struct Results {
    std::array<float, ops::kMetricCount> metrics;
    ops::LossScale scale_before;
    Optimizer::Outcome outcome;
  };

  // `running_stat_bytes` and `carried_bytes` are the sizes of all running statistics and carried
  // states. For `contiguous`, see StepTimer. The device must outlive the slot.
  StepSlot(int index, Device& device, const BatchPlan& plan, SampleSize sample,
           size_t running_stat_bytes, size_t carried_bytes, bool contiguous);
  ~StepSlot();

  // Fills the header and step states of the step in flight (see `step` and `passes`) in host
  // memory.
  void fill_header(const data::Batch& batch, uint64_t seed, float learning_rate,
                   bool stop_requested);
  // Queues the copy of the header to the device and, if staged(), that of the batch.
  void load(const data::Batch& batch, Stream& copies);
  // Queues the copy of the header alone.
  void load_header(Stream& stream) const;
  // What one of the training programs needs in this slot.
  struct Variant {
    std::vector<model::Context> passes;
    size_t input_bytes = 0;                // of a sample
    std::unique_ptr<Recording> recording;  // null until the step has been recorded
    int64_t runs = 0;                      // steps launched
  };
  // Adds a training program whose samples have `input_bytes`, at most as many as SampleSize says,
  // and creates a context for each pass. They use the blocks of activations in turn, as many as
  // there are micro-batches in flight. All arguments must outlive the slot.
  void add_program(const model::Program& program, size_t input_bytes,
                   const model::ModelArrays& arrays, std::span<std::byte> activations,
                   int64_t in_flight, const CarriedStates& carried);
  // The program of the step in flight.
  Variant& variant() { return variants_[program]; }
  const Variant& variant() const { return variants_[program]; }
  // Returns the number of labels of the batch in flight on all ranks (see StepState::labels).
  float labels() const;
  // Returns the context of a pass, bound to its rows of the loaded batch.
  model::Context& pass(int64_t i);
  ops::StepState* state(int64_t i) const;

  // Returns whether batches are copied to the device. The CPU reads them in place.
  bool staged() const { return inputs_.data() != nullptr; }
  size_t batch_bytes() const { return inputs_.bytes() + targets_.bytes(); }
  const void* header() const { return header_.data(); }  // in device memory
  // Returns the results, in host memory; valid once the step is done.
  Results& results() const { return *results_.as<Results>(); }

  const int index;
  const Buffer running_stats_before;    // copy of the running statistics before the step
  const Buffer states_before;           // copy of the carried states before the step
  const std::unique_ptr<Event> loaded;  // the header and a staged batch are on the device
  const std::unique_ptr<Event> done;
  StepTimer timer;
  // The step in flight:
  size_t program = 0;  // in the order of add_program()
  int64_t step = 0;
  int64_t passes = 0;
  int64_t rows = 0;  // samples of this rank
  bool profiled = false;

 private:
  void copy_passes(const Buffer& to, const std::byte* from, size_t sample_bytes,
                   Stream& copies) const;
  // Returns the distance between the data of two passes, in bytes.
  size_t stride(size_t sample_bytes) const;

  Device& device_;
  const BatchPlan plan_;
  const SampleSize sample_;
  Buffer host_header_, header_;  // see Header
  Buffer results_;
  Buffer inputs_, targets_;  // if staged(); the data of each pass is aligned
  std::vector<Variant> variants_;
  const std::byte* read_inputs_ = nullptr;  // where the passes read the loaded batch
  const std::byte* read_targets_ = nullptr;
};

}  // namespace trireme::train
