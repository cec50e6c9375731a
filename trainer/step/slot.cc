#include "trainer/step/slot.h"

#include <algorithm>

#include "core/alignment.h"

namespace trireme::train {
namespace {

ops::StepState* states(const Buffer& header) {
  return reinterpret_cast<ops::StepState*>(header.data() + sizeof(StepSlot::Header));
}

int64_t* places(const Buffer& header, int64_t passes) {
  return reinterpret_cast<int64_t*>(states(header) + passes);
}

}  // namespace

StepSlot::StepSlot(int its_index, Device& device, const BatchPlan& plan, SampleSize sample,
                   size_t running_stat_bytes, size_t carried_bytes, bool contiguous)
    : index(its_index),
      running_stats_before(device.allocate(running_stat_bytes)),
      states_before(device.allocate(carried_bytes)),
      loaded(device.create_event()),
      done(device.create_event()),
      timer(device, plan.passes, contiguous),
      device_(device),
      plan_(plan),
      sample_(sample),
      results_(device.allocate_host(sizeof(Results))) {
  const auto passes_planned = static_cast<size_t>(plan.passes);
  const size_t bytes = sizeof(Header) + passes_planned * sizeof(ops::StepState) +
                       static_cast<size_t>(plan.capacity) * sizeof(int64_t);
  host_header_ = device.allocate_host(bytes);
  header_ = device.allocate(bytes);
  if (device.kind() == DeviceKind::kCpu) return;
  inputs_ = device.allocate(passes_planned *
                            device_aligned(static_cast<size_t>(plan.micro) * sample.input));
  targets_ = device.allocate(passes_planned *
                             device_aligned(static_cast<size_t>(plan.micro) * sample.target));
}

// Recordings use all other members.
StepSlot::~StepSlot() {
  for (Variant& variant : variants_) variant.recording.reset();
}

void StepSlot::fill_header(const data::Batch& batch, uint64_t seed, float learning_rate,
                           bool stop_requested) {
  auto& metrics = host_header_.as<Header>()->metrics;
  metrics.fill(0);
  metrics[ops::kMetricStopRequests] = stop_requested ? 1 : 0;
  if (batch.places) {
    const std::span to(places(host_header_, plan_.passes), static_cast<size_t>(plan_.capacity));
    std::ranges::fill(std::ranges::copy_n(batch.places, batch.rows, to.begin()).out, to.end(), 0);
  }
  for (int64_t i = 0; i < plan_.passes; ++i) {
    const int64_t before = i * plan_.micro;
    ops::StepState state;
    state.step = step;
    state.seed = seed;
    state.first_sample = batch.first_row + before;
    state.valid_rows =
        static_cast<int32_t>(std::clamp<int64_t>(batch.rows - before, 0, plan_.micro));
    state.learning_rate = learning_rate;
    if (batch.places) state.places = places(header_, plan_.passes) + before;
    state.labels = static_cast<float>(batch.global_rows * sample_.labels);
    state.loss_gradient_scale = 1 / state.labels;
    states(host_header_)[i] = state;
  }
}

void StepSlot::load(const data::Batch& batch, Stream& copies) {
  load_header(copies);
  if (staged() && batch.inputs) {
    copy_passes(inputs_, batch.inputs, variant().input_bytes, copies);
    copy_passes(targets_, batch.targets, sample_.target, copies);
  }
  read_inputs_ = staged() ? inputs_.data() : batch.inputs;
  read_targets_ = staged() ? targets_.data() : batch.targets;
}

void StepSlot::load_header(Stream& stream) const {
  device_.copy(header_.data(), host_header_.data(), header_.bytes(), stream);
}

void StepSlot::copy_passes(const Buffer& to, const std::byte* from, size_t sample_bytes,
                           Stream& copies) const {
  const size_t bytes = static_cast<size_t>(plan_.micro) * sample_bytes;
  for (size_t i = 0; i < static_cast<size_t>(plan_.passes); ++i) {
    device_.copy(to.data() + i * stride(sample_bytes), from + i * bytes, bytes, copies);
  }
}

size_t StepSlot::stride(size_t sample_bytes) const {
  const size_t bytes = static_cast<size_t>(plan_.micro) * sample_bytes;
  return staged() ? device_aligned(bytes) : bytes;
}

void StepSlot::add_program(const model::Program& added, size_t input_bytes,
                           const model::ModelArrays& arrays, std::span<std::byte> activations,
                           int64_t in_flight, const CarriedStates& carried) {
  const size_t block = activations.size() / static_cast<size_t>(in_flight);
  Variant& variant = variants_.emplace_back();
  variant.input_bytes = input_bytes;
  for (int64_t i = 0; i < plan_.passes; ++i) {
    model::Context& context = variant.passes.emplace_back(
        added, arrays, activations.data() + static_cast<size_t>(i % in_flight) * block);
    carried.bind(context, states_before, i * plan_.micro);
  }
}

model::Context& StepSlot::pass(int64_t i) {
  const auto at = static_cast<size_t>(i);
  model::Context& context = variant().passes[at];
  context.bind_batch(read_inputs_ + at * stride(variant().input_bytes),
                     read_targets_ + at * stride(sample_.target), state(i));
  return context;
}

float StepSlot::labels() const { return states(host_header_)->labels; }

ops::StepState* StepSlot::state(int64_t i) const { return states(header_) + i; }

}  // namespace trireme::train
