#include "trainer/profile/trace_collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trainer/step/step_probe.h"

namespace trireme::train {
namespace {

// Subjects that every trace has, in their order.
enum Subject : int {
  kStep,
  kDataWait,
  kPrepare,
  kForward,
  kBackward,
  kExposed,
  kUpdatePhase,
  kUpdate,
  kCopy,
  kNextBatch,
  kRead,
  kFirstStretch
};

std::vector<TraceSubject> common_subjects(const Step& step) {
  return {{"step", kStepCategory},
          {"data wait", kPhaseCategory},
          {"prepare", kPhaseCategory},
          {"forward", kPhaseCategory},
          {"backward", kPhaseCategory},
          {"exposed communication", kPhaseCategory},
          {"update", kPhaseCategory},
          {"update", "update", {{"parameters", step.parameters().trained_count()}}},
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
  device_zero_ = time(step.probe()->made());
  trace_.rank = placement.rank;
  trace_.process =
      fmt::format("rank {} ({}, {})", placement.rank, placement.host_name, device.description());
  trace_.subjects = common_subjects(step);
  trace_.tracks = {{kStepTrack, "step"},
                   {kComputeTrack, "compute"},
                   {kUpdateTrack, "update"},
                   {kNextBatchTrack, "data: next batch"}};
  if (copies_) trace_.tracks.push_back({kCopyTrack, "data: to the device"});
  if (placement.ranks > 1) trace_.tracks.push_back({kCommunicationTrack, "communication"});
  name_layers(step);
  name_buckets(step, bucket_names);
}

void TraceCollector::name_layers(const Step& step) {
  for (const LayerStretch& stretch : step.probe()->stretches()) {
    trace_.subjects.push_back({stretch.name,
                               stretch.forward ? kForwardCategory : kBackwardCategory,
                               {{"kind", stretch.kind},
                                {"operations", stretch.operations},
                                {"FLOP", stretch.flops},
                                {"bytes", stretch.bytes}}});
    ++stretches_;
  }
}

void TraceCollector::name_buckets(const Step& step, std::span<const std::string> names) {
  first_bucket_ = static_cast<int>(trace_.subjects.size());
  for (size_t i = 0; i < step.buckets().size(); ++i) {
    const comm::Bucket& bucket = step.buckets()[i];
    const int64_t elements = bucket.end - bucket.begin;
    trace_.subjects.push_back({fmt::format("all-reduce, bucket {}", i),
                               "communication",
                               {{"bucket", i},
                                {"parameters", i < names.size() ? names[i] : ""},
                                {"first_element", bucket.begin},
                                {"elements", elements},
                                {"bytes", elements * int64_t{sizeof(float)}}}});
  }
}

int64_t TraceCollector::time(Clock::time_point at) const {
  return std::chrono::nanoseconds(at - zero_).count();
}

void TraceCollector::add(TrackId track, int subject, int64_t step, int64_t begin, int64_t end) {
  trace_.events.push_back({track, subject, step, begin, end - begin});
}

void TraceCollector::fetched(int64_t step, Clock::time_point asked, Clock::time_point came) {
  fetches_.push_back({step, time(asked), time(came)});
}

void TraceCollector::done(int64_t step, const StepTimeline& timeline) {
  const Fetch fetch = fetches_.front();
  fetches_.pop_front();
  add(kNextBatchTrack, kNextBatch, step, fetch.asked, fetch.came);
  add_phases(step, timeline, fetch);
  const auto add_span = [&](TrackId track, int subject, const TimeSpan& span) {
    add(track, subject, step, device_zero_ + nanoseconds(timeline.began + span.begin),
        device_zero_ + nanoseconds(timeline.began + span.end));
  };
  if (copies_) add_span(kCopyTrack, kCopy, timeline.copy);
  for (size_t i = 0; i < timeline.stretches.size(); ++i) {
    add_span(kComputeTrack, kFirstStretch + static_cast<int>(i) % stretches_,
             timeline.stretches[i]);
  }
  for (size_t i = 0; i < timeline.sums.size(); ++i) {
    add_span(kCommunicationTrack, first_bucket_ + static_cast<int>(i), timeline.sums[i]);
  }
  add_span(kUpdateTrack, kUpdate, timeline.update);
}

// They follow one another without a gap. Where the host asks for a batch while the device is still
// busy with the step before, only what comes after that counts as waiting.
void TraceCollector::add_phases(int64_t step, const StepTimeline& timeline, const Fetch& fetch) {
  const auto at = [&](double seconds) {
    return device_zero_ + nanoseconds(timeline.began + seconds);
  };
  const int64_t first = at(0);
  const int64_t begin = std::min(std::max(previous_end_, fetch.asked), first);
  const int64_t came = std::clamp(fetch.came, begin, first);
  previous_end_ = at(timeline.update.end);
  add(kStepTrack, kStep, step, begin, previous_end_);
  add(kStepTrack, kDataWait, step, begin, came);
  add(kStepTrack, kPrepare, step, came, at(timeline.forward.front().begin));
  for (size_t pass = 0; pass < timeline.forward.size(); ++pass) {
    const TimeSpan& forward = timeline.forward[pass];
    const TimeSpan& backward = timeline.backward[pass];
    add(kStepTrack, kForward, step, at(forward.begin), at(forward.end));
    add(kStepTrack, kBackward, step, at(backward.begin), at(backward.end));
  }
  add(kStepTrack, kExposed, step, at(timeline.exposed.begin), at(timeline.exposed.end));
  add(kStepTrack, kUpdatePhase, step, at(timeline.update.begin), at(timeline.update.end));
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
