#include "trainer/step/step.h"

#include <cmath>
#include <utility>
#include <vector>

#include "core/fault_point.h"
#include "core/profile_range.h"
#include "core/random.h"
#include "trainer/step/step_parts.h"
#include "trainer/step/step_probe.h"
#include "trainer/step/step_sequence.h"
#include "trainer/step/training_program.h"

namespace trireme::train {

struct Step::State {
  State(const Config& config, const model::Graph& graph, ops::Backend& backend,
        comm::Communicator& world, int loader_batches, std::span<const model::Graph> shorter)
      : parts(config, graph, backend, world, loader_batches, shorter), sequence(parts) {
    const comm::Group& group = parts.communicator->placement().group;
    gpu_steps = std::make_unique<comm::LedgerGroup>(
        parts.communicator->ledger(),
        comm::subgroup(group, name_hash("step on the GPU"), group.ranks));
  }

  std::optional<StepResult> run(const data::Batch& batch, int64_t step, float learning_rate,
                                bool stop_requested) {
    const ProfileRange range("step");
    StepSlot& slot = slot_of(launched);
    slot.program = parts.programs->number_of(batch.length);
    slot.step = step;
    slot.passes = parts.plan().passes_of(batch.global_rows, parts.grid().replicas);
    slot.rows = batch.rows;
    slot.fill_header(batch, parts.config.run.seed(), learning_rate, stop_requested);
    fault_point("inputs", step, {batch.inputs, parts.input_bytes});
    load(slot, batch);
    parts.carried->begin(batch, *parts.stream);
    launch(slot);
    fault_point("parameters", step,
                host_elements(parts.device, parts.arrays->parameters(), ops::kMetricCount,
                              parts.parameters().elements));
    ++launched;
    updated = true;
    if (slot.staged()) slot.loaded->synchronize();  // the caller may reuse the batch
    if (launched - collected < std::ssize(parts.slots)) return std::nullopt;
    return collect();
  }

  StepSlot& slot_of(int64_t launch) const {
    return *parts.slots[static_cast<size_t>(launch % std::ssize(parts.slots))];
  }

  // Copies the step's header and batch to the device, concurrently with the step before.
  void load(StepSlot& slot, const data::Batch& batch) const {
    const ProfileRange range("batch to the device");
    if (probe) probe->copy_begins(slot.index, *parts.copies);
    slot.load(batch, *parts.copies);
    if (probe) probe->copy_ends(slot.index, *parts.copies);
    parts.copies->record(*slot.loaded);
    parts.stream->wait(*slot.loaded);
  }

  // Queues the step. A slot's first step with a program is queued eagerly, so that libraries load
  // and choose their kernels; the second is recorded and replayed from then on. All ranks make the
  // same choice.
  void launch(StepSlot& slot) {
    slot.profiled = probe != nullptr;
    StepSlot::Variant& variant = slot.variant();
    const bool use_recording = slot.staged() && !parts.config.run.train().eager() &&
                               !slot.profiled && slot.passes == parts.plan().passes &&
                               variant.runs > 0;
    if (use_recording && !variant.recording) {
      variant.recording =
          parts.device.record(*parts.stream, [&] { sequence.encode(slot, nullptr); });
    }
    if (use_recording && variant.recording) {
      variant.recording->replay(*parts.stream);
    } else {
      if (slot.profiled) probe->step_begins(slot.index, *parts.stream);
      sequence.encode(slot, probe.get());
    }
    parts.stream->record(*slot.done);
    ++variant.runs;
  }

  StepResult collect() {
    StepSlot& slot = slot_of(collected);
    wait_for(slot);
    ++collected;
    const StepSlot::Results& results = slot.results();
    StepResult result;
    result.step = slot.step;
    result.metrics = results.metrics;
    result.timings = slot.timer.timings(slot.passes);
    result.timings.communication = parts.sync->seconds(slot.index);
    const ops::LossScale& scale_after = results.outcome.scale;
    if (parts.optimizer->scales_loss()) result.loss_scale = scale_after;
    result.gradient_scale =
        results.scale_before.scale * results.metrics[ops::kMetricWeight] / slot.labels();
    result.skipped_steps = scale_after.skipped;
    const bool skipped = scale_after.skipped > results.scale_before.skipped;
    result.not_finite = skipped && (results.scale_before.scale <= 1 ||
                                    !std::isfinite(results.metrics[ops::kMetricLoss]));
    if (result.not_finite && results.outcome.squares < 0) {
      result.overflowing_norm = std::sqrt(-results.outcome.squares) / result.gradient_scale;
    }
    if (!skipped) samples.add(slot.rows, results.metrics[ops::kMetricSamples]);
    if (result.not_finite) restore_carried(slot);
    if (slot.profiled) result.timeline = timeline_of(slot);
    return result;
  }

  void wait_for(StepSlot& slot) const {
    if (!slot.staged()) return slot.done->synchronize();
    comm::Ledger& ledger = parts.communicator->ledger();
    ledger.enter(comm::Phase::kForward, slot.step);
    ledger.set_detail(parts.pipeline ? "passes, transfers, sums and update are queued on the GPU"
                                     : "forward, backward, sums and update are queued on the GPU");
    gpu_steps->begin({"step on the GPU"});
    slot.done->synchronize();
    gpu_steps->end();
  }

  // Restores the carried states before a step in which numbers were not finite, and those with
  // which the other slots' steps began.
  void restore_carried(const StepSlot& failed) const {
    for (const auto& slot : parts.slots) {
      if (slot.get() == &failed) continue;
      copy(slot->states_before, failed.states_before);
    }
    copy(parts.carried->current(), failed.states_before);
  }

  void copy(const Buffer& to, const Buffer& from) const {
    copy_array(parts.device, to, from, *parts.stream);
  }

  std::shared_ptr<const StepTimeline> timeline_of(const StepSlot& slot) const {
    auto timeline = std::make_shared<StepTimeline>(probe->timeline(slot.index));
    Event& first = probe->start_event(slot.index);
    slot.timer.add_to(*timeline, first, slot.passes);
    timeline->sums = parts.sync->sums(first, slot.index);
    timeline->gathers = parts.sync->gathers(first, slot.index);
    return timeline;
  }

  // Gathers all that other ranks have updated, which the forward pass reads only a part of.
  void gather_parameters() {
    if (!parts.is_sharded() || !std::exchange(updated, false)) return;
    gather(parts.sync->arrays_of(parts.model.parameters));
    if (parts.model.low_precision) gather(parts.read_arrays);
    if (void* averages = parts.arrays->averages().data()) gather(parts.sync->arrays_of(averages));
  }
  void gather(std::span<const comm::Bucketer::Array> gathered) const {
    parts.sync->gather(gathered);
    parts.sync->wait_for_gathered(0);
  }

  std::optional<NotFinite> find_not_finite() {
    gather_parameters();
    return sequence.find_not_finite(slot_of(collected - 1));
  }

  std::optional<StepResult> finish() {
    std::optional<StepResult> last;
    while (collected < launched) last = collect();
    gather_parameters();
    parts.stream->synchronize();  // other streams may read what restore_carried() has written
    return last;
  }

  // The samples that this rank and all ranks together have seen since the running statistics were
  // averaged.
  struct Samples {
    int64_t own = 0;
    double all = 0;

    void add(int64_t rows, float of_all) {
      own += rows;
      all += double{of_all};
    }
    // Returns the weight of this rank's statistics in the mean over the replicas: 1 if all have
    // seen equally many.
    double weight(int replicas) const {
      return all > 0 ? static_cast<double>(own) * replicas / all : 1;
    }
  };

  StepParts parts;
  StepSequence sequence;
  Samples samples;
  // Tells the ledger, for the watchdog, that the host waits for a step on the GPU.
  std::unique_ptr<comm::LedgerGroup> gpu_steps;
  bool updated = false;  // since parameters were gathered
  int64_t launched = 0;
  int64_t collected = 0;
  std::unique_ptr<StepProbe> probe;  // null if steps are not profiled
};

Step::Step(const Config& config, const model::Graph& graph, ops::Backend& backend,
           comm::Communicator& world, int loader_batches, std::span<const model::Graph> shorter)
    : state_(std::make_unique<State>(config, graph, backend, world, loader_batches, shorter)) {}
Step::~Step() = default;

void Step::initialize() {
  const StepParts& parts = state_->parts;
  parts.optimizer->reset_state(*parts.stream);
  parts.carried->reset(*parts.stream);
  parts.arrays->initialize(parts.config.run.seed(), *parts.stream);
}

void Step::parameters_changed() { state_->parts.arrays->parameters_changed(*state_->parts.stream); }
void Step::restart_averages() { state_->parts.arrays->restart_averages(*state_->parts.stream); }
void Step::averages_changed() { state_->parts.arrays->averages_changed(*state_->parts.stream); }

std::optional<StepResult> Step::run(const data::Batch& batch, int64_t step, float learning_rate,
                                    bool stop_requested) {
  return state_->run(batch, step, learning_rate, stop_requested);
}

std::optional<StepResult> Step::finish() { return state_->finish(); }

void Step::gather_parameters() {
  state_->gather_parameters();
  state_->parts.stream->synchronize();
}

void Step::profile(bool on) {
  state_->probe.reset();
  if (!on) return;
  const StepParts& parts = state_->parts;
  state_->probe =
      std::make_unique<StepProbe>(parts.device, *parts.stream, parts.program(), parts.plan().passes,
                                  static_cast<int>(parts.slots.size()));
}

const StepProbe* Step::probe() const { return state_->probe.get(); }

std::optional<Step::NotFinite> Step::find_not_finite() { return state_->find_not_finite(); }

void Step::average_running_stats() {
  const StepParts& parts = state_->parts;
  const State::Samples samples = std::exchange(state_->samples, {});
  parts.arrays->average_running_stats(parts.replicas(), samples.weight(parts.grid().replicas),
                                      *parts.stream);
}

const BatchPlan& Step::plan() const { return state_->parts.plan(); }

size_t Step::memory_limit() const { return state_->parts.programs->limit; }

StepMemory Step::memory_bytes() const { return state_->parts.memory_bytes(); }
const model::Parameters& Step::parameters() const { return state_->parts.parameters(); }
const StateArrays& Step::state() const { return *state_->parts.state; }
const model::ModelArrays& Step::arrays() const { return state_->parts.model; }
model::ModelArrays Step::evaluation_arrays() const {
  return state_->parts.arrays->evaluation_model();
}
std::span<std::byte> Step::activations() const {
  const Buffer& all = state_->parts.arrays->activations();
  return {all.data(), all.bytes()};
}
Optimizer& Step::optimizer() { return *state_->parts.optimizer; }
const model::Program& Step::program() const { return state_->parts.program(); }
double Step::flops(const data::Batch& batch) const { return state_->parts.flops(batch); }
std::span<const comm::Bucket> Step::buckets() const { return state_->parts.sync->buckets(); }
std::span<const comm::Bucketer::Array> Step::gathered() const { return state_->parts.read_arrays; }
Stream& Step::stream() { return *state_->parts.stream; }
const PipelineStage& Step::stage() const { return state_->parts.stage; }
comm::Communicator& Step::communicator() { return *state_->parts.communicator; }
ops::Backend& Step::backend() { return state_->parts.backend; }

}  // namespace trireme::train
