// The operations of a training step in their order: forward and backward passes, sums, update.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "comm/ledger.h"
#include "trainer/step/step.h"
#include "trainer/step/step_parts.h"
#include "trainer/step/step_probe.h"

namespace trireme::train {

class StepSequence {
 public:
  // The parts must outlive the sequence.
  explicit StepSequence(StepParts& parts);

  // Queues the step in flight of a slot on the compute stream, or records it: the calls are the
  // same. `probe` measures the step unless it is null. Collective.
  void encode(StepSlot& slot, StepProbe* probe);

  // Computes the passes of the step in flight of a slot again, and checks every instruction; see
  // Step::find_not_finite(). Collective.
  std::optional<Step::NotFinite> find_not_finite(StepSlot& slot);

 private:
  void clear_gradients(const StepSlot& slot) const;
  template <class Forward, class Backward>
  void for_each_pass(StepSlot& slot, StepProbe* probe, const Forward& forward,
                     const Backward& backward) const;
  void encode_forward(StepSlot& slot, const model::Context& context, int64_t pass);
  void encode_backward(StepSlot& slot, const model::Context& context, int64_t pass);
  void encode_update(const StepSlot& slot) const;
  void enter(comm::Phase phase, const StepSlot& slot) const;

  StepParts& parts_;
  Device& device_;
  Stream& stream_;
  GradientSync& sync_;
  Pipeline* const pipeline_;                        // null if there is one stage
  std::function<void(int64_t)> wait_for_gathered_;  // empty without ZeRO
  const std::function<void(int64_t)> no_callback_;
};

}  // namespace trireme::train
