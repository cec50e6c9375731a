// Profiles some steps of a run: RUN/trace.json and RUN/profile.txt.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "data/loader.h"
#include "trainer/config/config.h"
#include "trainer/profile/clocks.h"
#include "trainer/profile/options.h"
#include "trainer/profile/trace_collector.h"
#include "trainer/step/step.h"

namespace trireme::train {

// Within the window it notes what steps and loader do; outside it does nothing. All ranks call
// open() and close() together.
class Profiler {
 public:
  using Clock = std::chrono::steady_clock;

  // Writes to `folder` on rank 0. Everything outlives the profiler; a batch need not come from a
  // loader (null).
  Profiler(ProfileOptions options, const Config& config, comm::Communicator& communicator,
           Step& step, data::Loader* loader, std::filesystem::path folder);

  // Whether the window begins here, or goes on here after a restart. Steps as in StepWindow.
  bool opens_before(int64_t step) const;
  void open();
  bool is_open() const { return collector_ != nullptr; }
  bool closes_after(int64_t step) const { return is_open() && step >= options_.window.last; }

  // Of each step of the window, in this order: its batch was asked for and is there now; it is
  // done.
  void fetched(int64_t step, Clock::time_point asked);
  void done(int64_t step, const StepTimeline& timeline);

  // Gathers what all ranks have, measures floors and writes the files. Comes after the results of
  // all steps.
  struct Outcome {
    std::string table;    // on rank 0
    std::string problem;  // why a file could not be written; empty: all are there
  };
  Outcome close();

  // Why there is nothing, for people, if there is nothing at the end of a run.
  std::string why_nothing() const;

 private:
  std::string title() const;
  nlohmann::json about(const Peaks& peaks) const;
  Peaks mean_peaks();

  ProfileOptions options_;
  const Config& config_;
  comm::Communicator& communicator_;
  Step& step_;
  data::Loader* loader_;
  std::filesystem::path folder_;
  std::vector<ClockOffset> clocks_;            // by rank
  double device_uncertainty_ = 0;              // seconds, of the device's clock beside the host's
  std::unique_ptr<TraceCollector> collector_;  // within the window
  StepWindow seen_{.first = 0, .last = 0};     // steps that were done within it
};

}  // namespace trireme::train
