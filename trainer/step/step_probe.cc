#include "trainer/step/step_probe.h"

#include <limits>

namespace trireme::train {

std::vector<LayerRange> layer_ranges(const model::Program& program) {
  const std::vector<model::LayerReport> layers = program.layers();
  const std::vector<model::InstructionReport> instructions = program.instructions();
  std::vector<LayerRange> ranges;
  for (size_t i = 0; i < instructions.size(); ++i) {
    const model::InstructionReport& instruction = instructions[i];
    const bool continues = i > 0 && instructions[i - 1].layer == instruction.layer &&
                           instructions[i - 1].forward == instruction.forward;
    if (!continues) {
      LayerRange range;
      if (instruction.layer >= 0) {
        const model::LayerReport& layer = layers[static_cast<size_t>(instruction.layer)];
        range.name = layer.name;
        range.kind = layer.kind;
      }
      range.forward = instruction.forward;
      range.first = i;
      ranges.push_back(std::move(range));
    }
    LayerRange& range = ranges.back();
    if (!range.operations.empty()) range.operations += ", ";
    range.operations += instruction.operation;
    if (instruction.repeats()) range.operations += " (repeated)";
    range.flops += instruction.flops;
    range.bytes += instruction.bytes;
    range.last = i;
  }
  return ranges;
}

StepProbe::StepProbe(Device& device, Stream& compute, const model::Program& program,
                     int64_t max_passes, int slots)
    : device_(device),
      ranges_(layer_ranges(program)),
      slots_(static_cast<size_t>(slots)),
      origin_(timed_event()) {
  for (size_t s = 0; s < ranges_.size(); ++s) {
    range_of_.resize(ranges_[s].last + 1, s);
  }
  for (Slot& each : slots_) {
    each.copy_begin = timed_event();
    each.copy_end = timed_event();
    for (size_t i = 0; i < ranges_.size() * static_cast<size_t>(max_passes); ++i) {
      each.begins.push_back(timed_event());
      each.ends.push_back(timed_event());
    }
  }
  for (int i = 0; i < slots + 1; ++i) start_events_.push_back(timed_event());
  previous_start_ = origin_.get();
  synchronize_clocks(compute);
}

// Records an event on the device between two readings of the host's clock, several times, and uses
// the attempt with the smallest difference.
void StepProbe::synchronize_clocks(Stream& compute) {
  constexpr int kAttempts = 10;
  compute.synchronize();
  Clock::time_point latest;
  uncertainty_ = std::numeric_limits<double>::max();
  double since_origin = 0;
  const auto first = timed_event();
  for (int i = 0; i < kAttempts; ++i) {
    Event& event = i == 0 ? *origin_ : *first;
    const Clock::time_point before = Clock::now();
    compute.record(event);
    event.synchronize();
    const Clock::time_point after = Clock::now();
    const double half = std::chrono::duration<double>(after - before).count() / 2;
    if (half >= uncertainty_) continue;
    uncertainty_ = half;
    since_origin = i == 0 ? 0 : device_.seconds_between(*origin_, event);
    latest = before + (after - before) / 2;
  }
  origin_time_ = latest - std::chrono::duration_cast<Clock::duration>(
                              std::chrono::duration<double>(since_origin));
}

void StepProbe::copy_begins(int index, Stream& copies) { copies.record(*slot(index).copy_begin); }

void StepProbe::copy_ends(int index, Stream& copies) { copies.record(*slot(index).copy_end); }

void StepProbe::step_begins(int index, Stream& compute) {
  current_ = &slot(index);
  current_->start = start_events_[steps_begun_++ % start_events_.size()].get();
  current_->passes = 0;
  compute.record(*current_->start);
}

void StepProbe::pass_begins(int64_t pass) {
  pass_ = pass;
  current_->passes = pass + 1;
}

size_t StepProbe::event_index(size_t instruction) const {
  return static_cast<size_t>(pass_) * ranges_.size() + range_of_[instruction];
}

void StepProbe::before(size_t instruction, Stream& stream) {
  const LayerRange& range = ranges_[range_of_[instruction]];
  if (range.first != instruction) return;
  profile_range_.emplace(range.name.c_str());
  stream.record(*current_->begins[event_index(instruction)]);
}

void StepProbe::after(size_t instruction, Stream& stream) {
  if (ranges_[range_of_[instruction]].last != instruction) return;
  stream.record(*current_->ends[event_index(instruction)]);
  profile_range_.reset();
}

Event& StepProbe::start_event(int index) { return *slot(index).start; }

StepTimeline StepProbe::timeline(int index) {
  const Slot& done = slot(index);
  const auto since = [&](Event& event) { return device_.seconds_between(*done.start, event); };
  StepTimeline timeline;
  previous_start_time_ += device_.seconds_between(*previous_start_, *done.start);
  previous_start_ = done.start;
  timeline.start = previous_start_time_;
  timeline.copy = {since(*done.copy_begin), since(*done.copy_end)};
  const size_t count = ranges_.size() * static_cast<size_t>(done.passes);
  for (size_t i = 0; i < count; ++i) {
    timeline.layers.push_back({since(*done.begins[i]), since(*done.ends[i])});
  }
  return timeline;
}

}  // namespace trireme::train
