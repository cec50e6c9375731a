// The events of a rank, and a file with those of all ranks in the Trace Event Format, which
// chrome://tracing and ui.perfetto.dev can open.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace trireme::train {

// The tracks of a rank on the timeline. Events of a track are disjoint or nested.
enum TrackId : int {
  kStepTrack = 1,
  kComputeTrack,
  kCommunicationTrack,
  kUpdateTrack,
  kCopyTrack,       // copies of batches to the device
  kNextBatchTrack,  // times in which the host waits for the next batch
  kLoaderTracks,    // the first of the loader's threads, which have a track each
};

// Categories of events: steps, their phases, and the layers' forward and backward passes.
inline constexpr const char* kStepCategory = "step";
inline constexpr const char* kPhaseCategory = "phase";
inline constexpr const char* kForwardCategory = "forward";
inline constexpr const char* kBackwardCategory = "backward";

// The properties that many events have in common.
struct EventDescriptor {
  std::string name;
  std::string category;
  nlohmann::json args = nlohmann::json::object();
  std::string number = "step";  // the meaning of TraceEvent::number
};

// Times are in nanoseconds since the beginning of the window on the first rank to open it.
struct TraceEvent {
  int track = 0;       // TrackId
  int descriptor = 0;  // index into RankTrace::descriptors
  int64_t number = 0;
  int64_t begin = 0;
  int64_t duration = 0;
};

struct RankTrace {
  int rank = 0;
  std::string process;  // for display: "rank 0 (host a, CPU)"
  struct Track {
    int id = 0;
    std::string name;
  };
  std::vector<Track> tracks;
  std::vector<EventDescriptor> descriptors;
  std::vector<TraceEvent> events;
};

// Serialize a trace to send it to another rank.
std::string to_text(const RankTrace& trace);
RankTrace rank_trace_from(const std::string& text);

// Return the parts of the file: the head, the events of each rank, the tail. A rank is a process, a
// track a thread. `first` is true for the first rank. Viewers show `metadata` with the trace.
std::string trace_head();
std::string trace_events(const RankTrace& trace, bool first);
std::string trace_tail(const nlohmann::json& metadata);

}  // namespace trireme::train
