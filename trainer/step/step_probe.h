// Marks the times of a step's parts on its device. Made for the steps of a profile only.
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

// Operations in a row that one layer has emitted, forward or backward.
struct LayerStretch {
  std::string name = "input";  // of the layer; this where it prepares the network's input
  std::string kind = "input";  // of the layer: "conv2d"
  bool forward = true;
  std::string operations = {};  // "conv2d_backward_data, conv2d_backward_weights"
  double flops = 0;             // of one pass
  double bytes = 0;             // likewise, see Program::traffic_bytes
  size_t first = 0;             // of Program::instructions()
  size_t last = 0;
};
std::vector<LayerStretch> layer_stretches(const model::Program& program);

class StepProbe final : public model::InstructionObserver {
 public:
  using Clock = std::chrono::steady_clock;

  // For steps of up to so many passes, of which as many as there are slots may be under way. Waits
  // until all that is queued on `compute` is done. Everything outlives the probe.
  StepProbe(Device& device, Stream& compute, const model::Program& program, int64_t passes,
            int slots);

  // While a step is queued, in this order.
  void copy_begins(int slot, Stream& copies);
  void copy_ends(int slot, Stream& copies);
  void step_begins(int slot, Stream& compute);
  void pass_begins(int64_t pass);
  void before(size_t instruction, Stream& stream) override;
  void after(size_t instruction, Stream& stream) override;

  // Once the slot's step is done, before the slot is used again; steps in their order. Sums, phases
  // and update are the caller's to add, in seconds after first_moment().
  StepTimeline timeline(int slot);
  Event& first_moment(int slot);

  const std::vector<LayerStretch>& stretches() const { return stretches_; }
  // The moment that StepTimeline::began is counted from, by the host's clock, and by how much that
  // may be wrong.
  Clock::time_point made() const { return made_; }
  double uncertainty() const { return uncertainty_; }  // seconds

 private:
  struct Slot {
    std::unique_ptr<Event> copy_begin, copy_end;
    Event* first = nullptr;
    std::vector<std::unique_ptr<Event>> begins, ends;  // of stretches, pass after pass
    int64_t passes = 0;
  };
  std::unique_ptr<Event> timed() { return device_.create_event(EventKind::kTimed); }
  size_t place(size_t instruction) const;
  Slot& slot(int index) { return slots_.at(static_cast<size_t>(index)); }
  void synchronize_clocks(Stream& compute);

  Device& device_;
  std::vector<LayerStretch> stretches_;
  std::vector<size_t> stretch_of_;  // by instruction
  std::vector<Slot> slots_;
  // First moments, in turns: one more than slots, since the times between two in a row are added up
  // (long times between events are imprecise on GPUs).
  std::vector<std::unique_ptr<Event>> firsts_;
  size_t begun_ = 0;  // steps
  std::unique_ptr<Event> origin_;
  Event* before_ = nullptr;  // the first moment of the step that timeline() was last asked for
  double began_ = 0;         // when that was
  Clock::time_point made_;
  double uncertainty_ = 0;
  Slot* now_ = nullptr;  // that is being queued
  int64_t pass_ = 0;
  std::optional<ProfileRange> range_;
};

}  // namespace trireme::train
