#include "trainer/step/step_sequence.h"

#include <utility>

#include "core/fault_point.h"
#include "core/profile_range.h"
#include "trainer/step/pipeline_schedule.h"
#include "trainer/step/training_program.h"

namespace trireme::train {

StepSequence::StepSequence(StepParts& parts)
    : parts_(parts),
      device_(parts.device),
      stream_(*parts.stream),
      sync_(*parts.sync),
      pipeline_(parts.pipeline.get()) {
  if (parts.is_sharded()) {
    wait_for_gathered_ = [this](int64_t begin) { sync_.wait_for_gathered(begin); };
  }
}

void StepSequence::encode(StepSlot& slot, StepProbe* probe) {
  sync_.begin(slot.index);
  clear_gradients(slot);
  copy_array(device_, slot.running_stats_before, parts_.arrays->running_stats(), stream_);
  copy_array(device_, slot.states_before, parts_.carried->current(), stream_);
  if (parts_.is_sharded()) sync_.gather(parts_.read_arrays);
  if (pipeline_) pipeline_->exchange->begin(slot.passes);
  slot.timer.record(StepTimer::kPassesBegin, stream_);
  for_each_pass(
      slot, probe,
      [&](const model::Context& context, int64_t pass) { encode_forward(slot, context, pass); },
      [&](const model::Context& context, int64_t pass) { encode_backward(slot, context, pass); });
  slot.timer.record(StepTimer::kPassesEnd, stream_);
  enter(comm::Phase::kCommunication, slot);
  // The sums over stages come last, so that all copies of a parameter get the same gradient; but
  // with shards, a rank has only a part of the gradients after sync_.finish().
  const auto sum_shared_gradients = [&] {
    if (pipeline_) pipeline_->sum_shared_gradients(parts_.model.gradients, stream_);
  };
  if (parts_.is_sharded()) sum_shared_gradients();
  sync_.finish();
  if (!parts_.is_sharded()) sum_shared_gradients();
  slot.timer.record(StepTimer::kSumsEnd, stream_);
  if (pipeline_) {
    pipeline_->exchange->end();
    pipeline_->sum_metrics(parts_.model.gradients, stream_);
  }
  slot.timer.record(StepTimer::kStageSumsEnd, stream_);
  encode_update(slot);
  slot.timer.record(StepTimer::kUpdateEnds, stream_);
}

void StepSequence::clear_gradients(const StepSlot& slot) const {
  std::byte* const gradients = sync_.gradients().data();
  if (accumulates(parts_.config, parts_.plan(), parts_.shard)) {
    device_.fill_zero(gradients, parts_.parameters().trained_bytes(), stream_);
  }
  // A pass that overwrites gradients still adds to the metrics in front of them.
  device_.copy(gradients, slot.header(), sizeof(StepSlot::Header), stream_);
}

// Calls `forward` or `backward` with the context and number of each micro-batch in the order of
// the schedule. What crosses the cuts between stages is received before and sent after each.
template <class Forward, class Backward>
void StepSequence::for_each_pass(StepSlot& slot, StepProbe* probe, const Forward& forward,
                                 const Backward& backward) const {
  const Grid& grid = parts_.grid();
  for (const PipelineAction& pass : pipeline_schedule(grid.stage, grid.stages, slot.passes)) {
    model::Context& context = slot.pass(pass.micro_batch);
    context.observe(probe);
    if (probe) probe->pass_begins(pass.micro_batch);
    if (pipeline_) pipeline_->exchange->before(pass, context);
    if (pass.forward) {
      forward(context, pass.micro_batch);
    } else {
      backward(context, pass.micro_batch);
    }
    if (pipeline_) pipeline_->exchange->after(pass);
  }
}

void StepSequence::encode_forward(StepSlot& slot, const model::Context& context, int64_t pass) {
  const ProfileRange range("forward");
  slot.timer.record(StepTimer::kForwardBegins, pass, stream_);
  enter(comm::Phase::kForward, slot);
  fault_point("forward", slot.step);
  parts_.optimizer->encode_loss_scaling(stream_, slot.state(pass));
  context.forward(stream_, wait_for_gathered_);
  if (parts_.is_sharded()) sync_.wait_for_gathered(0);
  slot.timer.record(StepTimer::kForwardEnds, pass, stream_);
}

void StepSequence::encode_backward(StepSlot& slot, const model::Context& context, int64_t pass) {
  const ProfileRange range("backward");
  sync_.begin_pass(pass, slot.passes);
  slot.timer.record(StepTimer::kBackwardBegins, pass, stream_);
  enter(comm::Phase::kBackward, slot);
  // Buckets with gradients that other stages have parts of are summed after the last pass.
  const bool sums = !pipeline_ || !pipeline_->has_shared_gradients();
  context.backward(stream_, sums ? sync_.advance() : no_callback_);
  slot.timer.record(StepTimer::kBackwardEnds, pass, stream_);
}

void StepSequence::encode_update(const StepSlot& slot) const {
  const ProfileRange range("update");
  enter(comm::Phase::kUpdate, slot);
  fault_point("update", slot.step);
  Optimizer& optimizer = *parts_.optimizer;
  StepSlot::Results& results = slot.results();
  device_.copy(&results.scale_before, optimizer.outcome(), sizeof(ops::LossScale), stream_);
  optimizer.encode(stream_, parts_.model, parts_.arrays->averages().data(),
                   slot.running_stats_before, slot.state(0));
  device_.copy(&results.metrics, parts_.model.gradients, sizeof results.metrics, stream_);
  device_.copy(&results.outcome, optimizer.outcome(), sizeof results.outcome, stream_);
}

// Records the phase on the CPU. On a GPU the host only queues work, so the phase is unknown.
void StepSequence::enter(comm::Phase phase, const StepSlot& slot) const {
  if (!slot.staged()) parts_.communicator->ledger().enter(phase, slot.step);
}

std::optional<Step::NotFinite> StepSequence::find_not_finite(StepSlot& slot) {
  // The forward passes update the running statistics; no one needs those before the step any more.
  copy_array(device_, slot.running_stats_before, parts_.arrays->running_stats(), stream_);
  slot.load_header(stream_);  // loss scaling has changed the device's copy
  clear_gradients(slot);
  sync_.begin_without_sums();
  const Grid& grid = parts_.grid();
  std::optional<Step::NotFinite> found;
  const auto note = [&](int64_t pass, int64_t order,
                        std::optional<model::Context::NotFinite> first) {
    if (!first || found) return;
    found = {(pass << 40) + (order << 24) + first->instruction, std::move(first->what)};
  };
  if (pipeline_) pipeline_->exchange->begin(slot.passes);
  for_each_pass(
      slot, nullptr,
      [&](const model::Context& context, int64_t pass) {
        parts_.optimizer->encode_loss_scaling(stream_, slot.state(pass));
        note(pass, grid.stage, context.check_forward(device_, stream_));
      },
      [&](const model::Context& context, int64_t pass) {
        const bool last = pass + 1 == slot.passes;
        note(pass, 2 * grid.stages - 1 - grid.stage,
             context.check_backward(device_, stream_,
                                    last ? sync_.advance_without_sums() : no_callback_));
      });
  if (pipeline_) pipeline_->exchange->end();
  copy_array(device_, parts_.arrays->running_stats(), slot.running_stats_before, stream_);
  copy_array(device_, parts_.carried->current(), slot.states_before, stream_);
  stream_.synchronize();
  return found;
}

}  // namespace trireme::train
