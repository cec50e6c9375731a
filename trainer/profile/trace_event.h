// What one rank did and when, and all ranks together as a file in the Trace Event Format, which
// chrome://tracing and ui.perfetto.dev open.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace trireme::train {

// Rows of a rank on the timeline. Events of one row do not overlap, or lie one within the other.
enum TrackId : int {
  kStepTrack = 1,
  kComputeTrack,
  kCommunicationTrack,
  kUpdateTrack,
  kCopyTrack,       // of batches to the device
  kNextBatchTrack,  // what the host waits for
  kLoaderTracks,    // and on: one for each of the loader's threads
};

// Categories of events: steps, their phases, and what layers do.
inline constexpr const char* kStepCategory = "step";
inline constexpr const char* kPhaseCategory = "phase";
inline constexpr const char* kForwardCategory = "forward";
inline constexpr const char* kBackwardCategory = "backward";

// What events are of, of which many have the same.
struct TraceSubject {
  std::string name;
  std::string category;
  nlohmann::json args = nlohmann::json::object();
  std::string number = "step";  // what TraceEvent::number is
};

// Times in nanoseconds; the beginning of the window on all ranks is 0.
struct TraceEvent {
  int track = 0;
  int subject = 0;  // of RankTrace::subjects
  int64_t number = 0;
  int64_t begin = 0;
  int64_t duration = 0;
};

struct RankTrace {
  int rank = 0;
  std::string process;  // for people: "rank 0 (host a, CPU)"
  struct Track {
    int id = 0;
    std::string name;
  };
  std::vector<Track> tracks;
  std::vector<TraceSubject> subjects;
  std::vector<TraceEvent> events;
};

// For sending it to another rank.
std::string to_text(const RankTrace& trace);
RankTrace rank_trace_from(const std::string& text);

// The file, piece by piece: the head, each rank, the tail. `about` is what viewers show of the
// trace as a whole.
std::string trace_head();
// Events of a rank: process rank, thread track.
std::string trace_events(const RankTrace& trace, bool first);
std::string trace_tail(const nlohmann::json& about);

}  // namespace trireme::train
