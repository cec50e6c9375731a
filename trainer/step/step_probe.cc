#include "trainer/step/step_probe.h"

#include <limits>

namespace trireme::train {

std::vector<LayerStretch> layer_stretches(const model::Program& program) {
  const std::vector<model::LayerReport> layers = program.layers();
  const std::vector<model::InstructionReport> instructions = program.instructions();
  std::vector<LayerStretch> stretches;
  for (size_t i = 0; i < instructions.size(); ++i) {
    const model::InstructionReport& instruction = instructions[i];
    const bool goes_on = i > 0 && instructions[i - 1].layer == instruction.layer &&
                         instructions[i - 1].forward == instruction.forward;
    if (!goes_on) {
      LayerStretch stretch;
      if (instruction.layer >= 0) {
        const model::LayerReport& layer = layers[static_cast<size_t>(instruction.layer)];
        stretch.name = layer.name;
        stretch.kind = layer.kind;
      }
      stretch.forward = instruction.forward;
      stretch.first = i;
      stretches.push_back(std::move(stretch));
    }
    LayerStretch& stretch = stretches.back();
    if (!stretch.operations.empty()) stretch.operations += ", ";
    stretch.operations += instruction.operation;
    stretch.flops += instruction.flops;
    stretch.bytes += instruction.bytes;
    stretch.last = i;
  }
  return stretches;
}

StepProbe::StepProbe(Device& device, Stream& compute, const model::Program& program, int64_t passes,
                     int slots)
    : device_(device),
      stretches_(layer_stretches(program)),
      slots_(static_cast<size_t>(slots)),
      origin_(timed()) {
  for (size_t s = 0; s < stretches_.size(); ++s) {
    stretch_of_.resize(stretches_[s].last + 1, s);
  }
  for (Slot& each : slots_) {
    each.copy_begin = timed();
    each.copy_end = timed();
    for (size_t i = 0; i < stretches_.size() * static_cast<size_t>(passes); ++i) {
      each.begins.push_back(timed());
      each.ends.push_back(timed());
    }
  }
  for (int i = 0; i < slots + 1; ++i) firsts_.push_back(timed());
  before_ = origin_.get();
  synchronize_clocks(compute);
}

// The quickest of a few looks: the device's moment lies between two of the host's.
void StepProbe::synchronize_clocks(Stream& compute) {
  constexpr int kLooks = 10;
  compute.synchronize();
  Clock::time_point latest;
  uncertainty_ = std::numeric_limits<double>::max();
  double least_ahead = 0;
  const auto first = timed();
  for (int i = 0; i < kLooks; ++i) {
    Event& event = i == 0 ? *origin_ : *first;
    const Clock::time_point before = Clock::now();
    compute.record(event);
    event.synchronize();
    const Clock::time_point after = Clock::now();
    const double half = std::chrono::duration<double>(after - before).count() / 2;
    if (half >= uncertainty_) continue;
    uncertainty_ = half;
    least_ahead = i == 0 ? 0 : device_.seconds_between(*origin_, event);
    latest = before + (after - before) / 2;
  }
  made_ = latest -
          std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(least_ahead));
}

void StepProbe::copy_begins(int index, Stream& copies) { copies.record(*slot(index).copy_begin); }

void StepProbe::copy_ends(int index, Stream& copies) { copies.record(*slot(index).copy_end); }

void StepProbe::step_begins(int index, Stream& compute) {
  now_ = &slot(index);
  now_->first = firsts_[begun_++ % firsts_.size()].get();
  now_->passes = 0;
  compute.record(*now_->first);
}

void StepProbe::pass_begins(int64_t pass) {
  pass_ = pass;
  now_->passes = pass + 1;
}

size_t StepProbe::place(size_t instruction) const {
  return static_cast<size_t>(pass_) * stretches_.size() + stretch_of_[instruction];
}

void StepProbe::before(size_t instruction, Stream& stream) {
  const LayerStretch& stretch = stretches_[stretch_of_[instruction]];
  if (stretch.first != instruction) return;
  range_.emplace(stretch.name.c_str());
  stream.record(*now_->begins[place(instruction)]);
}

void StepProbe::after(size_t instruction, Stream& stream) {
  if (stretches_[stretch_of_[instruction]].last != instruction) return;
  stream.record(*now_->ends[place(instruction)]);
  range_.reset();
}

Event& StepProbe::first_moment(int index) { return *slot(index).first; }

StepTimeline StepProbe::timeline(int index) {
  const Slot& done = slot(index);
  const auto since = [&](Event& event) { return device_.seconds_between(*done.first, event); };
  StepTimeline timeline;
  began_ += device_.seconds_between(*before_, *done.first);
  before_ = done.first;
  timeline.began = began_;
  timeline.copy = {since(*done.copy_begin), since(*done.copy_end)};
  const size_t count = stretches_.size() * static_cast<size_t>(done.passes);
  for (size_t i = 0; i < count; ++i) {
    timeline.stretches.push_back({since(*done.begins[i]), since(*done.ends[i])});
  }
  return timeline;
}

}  // namespace trireme::train
