// Measures when the layers and other parts of a profiled step run on its device.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/profile_range.h"
#include "model/context.h"
#include "trainer/step/timeline.h"

namespace trireme::train {

// Consecutive instructions of a program that belong to one layer, forward or backward.
struct LayerRange {
  std::string name = "input";  // name of the layer; "input" if it prepares the network's input
  std::string kind = "input";  // kind of the layer: "conv2d"
  bool forward = true;
  std::string operations = {};  // "conv2d_backward_data, conv2d_backward_weights"
  double flops = 0;             // of one pass
  double bytes = 0;             // of one pass, see Program::traffic_bytes
  size_t first = 0;             // index into Program::instructions()
  size_t last = 0;              // likewise, inclusive
};
std::vector<LayerRange> layer_ranges(const model::Program& program);

class StepProbe final : public model::InstructionObserver {
 public:
  using Clock = std::chrono::steady_clock;

  // `max_passes` is the maximum number of passes of a step, `slots` the number of steps that may be
  // in flight. Blocks until `compute` is idle. All arguments must outlive the probe.
  StepProbe(Device& device, Stream& compute, const model::Program& program, int64_t max_passes,
            int slots);

  // Queue the measurement of a step, in this order.
  void copy_begins(int slot, Stream& copies);
  void copy_ends(int slot, Stream& copies);
  void step_begins(int slot, Stream& compute);
  void pass_begins(int64_t pass);
  void before(size_t instruction, Stream& stream) override;
  void after(size_t instruction, Stream& stream) override;

  // Returns the times of the slot's step. Must be called for each step in order, once it is done
  // and before the slot is reused. The caller adds `forward`, `backward`, `exposed`, `update` and
  // `sums`, in seconds since start_event().
  StepTimeline timeline(int slot);
  Event& start_event(int slot);

  const std::vector<LayerRange>& ranges() const { return ranges_; }
  // Returns the time, on the host's clock, that StepTimeline::start is relative to.
  Clock::time_point origin_time() const { return origin_time_; }
  // Returns the maximum error of origin_time(), in seconds.
  double uncertainty() const { return uncertainty_; }

 private:
  struct Slot {
    std::unique_ptr<Event> copy_begin, copy_end;
    Event* start = nullptr;
    std::vector<std::unique_ptr<Event>> begins, ends;  // of the layer ranges, pass after pass
    int64_t passes = 0;
  };
  std::unique_ptr<Event> timed_event() { return device_.create_event(EventKind::kTimed); }
  // Returns the index into Slot::begins and Slot::ends in the current pass.
  size_t event_index(size_t instruction) const;
  Slot& slot(int index) { return slots_.at(static_cast<size_t>(index)); }
  void synchronize_clocks(Stream& compute);

  Device& device_;
  std::vector<LayerRange> ranges_;
  std::vector<size_t> range_of_;  // by instruction
  std::vector<Slot> slots_;
  // Events at the start of steps, used in turn. One more than there are slots: the times between
  // consecutive steps are summed, since long times between events are imprecise on GPUs.
  std::vector<std::unique_ptr<Event>> start_events_;
  size_t steps_begun_ = 0;
  std::unique_ptr<Event> origin_;
  Event* previous_start_ = nullptr;  // start of the step that timeline() last returned
  double previous_start_time_ = 0;   // seconds since origin_
  Clock::time_point origin_time_;
  double uncertainty_ = 0;
  Slot* current_ = nullptr;  // the slot that is being queued
  int64_t pass_ = 0;
  std::optional<ProfileRange> profile_range_;
};

}  // namespace trireme::train
