#include "trainer/profile/trace_collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "trainer/step/step_probe.h"

namespace trireme::train {
namespace {

// Descriptors that every trace has, in this order.
enum Descriptor : int {
  kStep,
  kDataWait,
  kPrepare,
  kForward,
  kBackward,
  kExposed,
  kIdle,
  kUpdatePhase,
  kUpdate,
  kCopy,
  kNextBatch,
  kRead,
  kFirstLayerRange
};

std::vector<EventDescriptor> common_descriptors(const Step& step) {
  return {{"step", kStepCategory},
          {"data wait", kPhaseCategory},
          {"prepare", kPhaseCategory},
          {"forward", kPhaseCategory},
          {"backward", kPhaseCategory},
          {"exposed communication", kPhaseCategory},
          {"idle: other stages", kPhaseCategory},
          {"update", kPhaseCategory},
          {"update", "update", {{"parameters", step.parameters().trained_elements}}},
          {"batch to the device", "data"},
          {"next batch", "data"},
          {.name = "read", .category = "data", .number = "position"}};
}

int64_t nanoseconds(double seconds) { return std::llround(1e9 * seconds); }

}  // namespace

TraceCollector::TraceCollector(const Step& step, const comm::Placement& placement,
                               const Device& device, std::span<const std::string> bucket_names,
                               Clock::time_point zero)
    : zero_(zero), copies_(step.memory_bytes().batches > 0) {
  device_zero_ = time(step.probe()->origin_time());
  trace_.rank = placement.rank;
  const Grid& grid = step.stage().grid;
  trace_.process = fmt::format(
      "rank {} ({}{}, {})", placement.rank,
      grid.has_pipeline() ? fmt::format("stage {}, replica {}, ", grid.stage, grid.replica) : "",
      placement.host_name, device.description());
  trace_.descriptors = common_descriptors(step);
  trace_.tracks = {{kStepTrack, "step"},
                   {kComputeTrack, "compute"},
                   {kUpdateTrack, "update"},
                   {kNextBatchTrack, "data: next batch"}};
  if (copies_) trace_.tracks.push_back({kCopyTrack, "data: to the device"});
  if (placement.ranks > 1) trace_.tracks.push_back({kCommunicationTrack, "communication"});
  name_layers(step);
  set_bucket_names(step, bucket_names);
}

void TraceCollector::name_layers(const Step& step) {
  for (const LayerRange& range : step.probe()->ranges()) {
    trace_.descriptors.push_back({range.name,
                                  range.forward ? kForwardCategory : kBackwardCategory,
                                  {{"kind", range.kind},
                                   {"operations", range.operations},
                                   {"FLOP", range.flops},
                                   {"bytes", range.bytes}}});
    ++layer_ranges_;
  }
}

// Adds descriptors of the sums of all buckets and then, if parameters are gathered, of the gathers.
void TraceCollector::set_bucket_names(const Step& step, std::span<const std::string> names) {
  first_bucket_ = static_cast<int>(trace_.descriptors.size());
  const auto gathered = step.gathered();
  const auto describe = [&](const char* what, size_t i, DType dtype) {
    const comm::Bucket& bucket = step.buckets()[i];
    const int64_t elements = bucket.end - bucket.begin;
    trace_.descriptors.push_back({fmt::format("{}, bucket {}", what, i),
                                  "communication",
                                  {{"bucket", i},
                                   {"parameters", i < names.size() ? names[i] : ""},
                                   {"first_element", bucket.begin},
                                   {"elements", elements},
                                   {"bytes", elements * static_cast<int64_t>(size_of(dtype))}}});
  };
  for (size_t i = 0; i < step.buckets().size(); ++i) {
    describe(gathered.empty() ? "all-reduce" : "reduce-scatter", i, DType::kF32);
  }
  for (size_t i = 0; i < gathered.size(); ++i) describe("all-gather", i, gathered[i].dtype);
}

int64_t TraceCollector::time(Clock::time_point at) const {
  return std::chrono::nanoseconds(at - zero_).count();
}

void TraceCollector::add(TrackId track, int descriptor, int64_t step, int64_t begin, int64_t end) {
  trace_.events.push_back({track, descriptor, step, begin, end - begin});
}

void TraceCollector::fetched(int64_t step, Clock::time_point asked, Clock::time_point arrived) {
  fetches_.push_back({step, time(asked), time(arrived)});
}

void TraceCollector::done(int64_t step, const StepTimeline& timeline) {
  const Fetch fetch = fetches_.front();
  fetches_.pop_front();
  add(kNextBatchTrack, kNextBatch, step, fetch.asked, fetch.arrived);
  add_phases(step, timeline, fetch);
  const auto add_span = [&](TrackId track, int descriptor, const TimeSpan& span) {
    add(track, descriptor, step, device_zero_ + nanoseconds(timeline.start + span.begin),
        device_zero_ + nanoseconds(timeline.start + span.end));
  };
  if (copies_) add_span(kCopyTrack, kCopy, timeline.copy);
  for (size_t i = 0; i < timeline.layers.size(); ++i) {
    add_span(kComputeTrack, kFirstLayerRange + static_cast<int>(i) % layer_ranges_,
             timeline.layers[i]);
  }
  const int first_gather = first_bucket_ + static_cast<int>(timeline.sums.size());
  for (size_t i = timeline.gathers.size(); i-- > 0;) {  // in the order in which they run
    add_span(kCommunicationTrack, first_gather + static_cast<int>(i), timeline.gathers[i]);
  }
  for (size_t i = 0; i < timeline.sums.size(); ++i) {
    add_span(kCommunicationTrack, first_bucket_ + static_cast<int>(i), timeline.sums[i]);
  }
  add_span(kUpdateTrack, kUpdate, timeline.update);
}

// Adds the phases of a step, which follow each other without gaps. If the host requests a batch
// while the device is still busy with the step before, waiting only counts from the end of that
// step.
void TraceCollector::add_phases(int64_t step, const StepTimeline& timeline, const Fetch& fetch) {
  const auto at = [&](double seconds) {
    return device_zero_ + nanoseconds(timeline.start + seconds);
  };
  const int64_t first = at(0);
  const int64_t begin = std::min(std::max(previous_end_, fetch.asked), first);
  const int64_t arrived = std::clamp(fetch.arrived, begin, first);
  previous_end_ = at(timeline.update.end);
  add(kStepTrack, kStep, step, begin, previous_end_);
  add(kStepTrack, kDataWait, step, begin, arrived);
  // Pipeline stages alternate between passes, and wait in between.
  std::vector<std::pair<TimeSpan, int>> phases{{timeline.exposed, kExposed},
                                               {timeline.update, kUpdatePhase}};
  for (const TimeSpan& span : timeline.forward) phases.emplace_back(span, kForward);
  for (const TimeSpan& span : timeline.backward) phases.emplace_back(span, kBackward);
  for (const TimeSpan& span : timeline.idle) phases.emplace_back(span, kIdle);
  std::ranges::sort(
      phases, {}, [](const auto& phase) { return std::pair(phase.first.begin, phase.first.end); });
  add(kStepTrack, kPrepare, step, arrived, at(phases.front().first.begin));
  for (const auto& [span, descriptor] : phases) {
    add(kStepTrack, descriptor, step, at(span.begin), at(span.end));
  }
}

void TraceCollector::read(std::span<const data::ReadRows> all) {
  for (const data::ReadRows& rows : all) {
    for (; loaders_ <= rows.worker; ++loaders_) {
      trace_.tracks.push_back({kLoaderTracks + loaders_, fmt::format("data: loader {}", loaders_)});
    }
    trace_.events.push_back({kLoaderTracks + rows.worker, kRead, rows.position, time(rows.begin),
                             time(rows.end) - time(rows.begin)});
  }
}

}  // namespace trireme::train
