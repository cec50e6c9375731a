// Profiles a range of steps of a run and writes RUN/trace.json and RUN/profile.txt.
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

// Records what the steps and the loader do within the window of options.window. open() and close()
// are collective.
class Profiler {
 public:
  using Clock = std::chrono::steady_clock;

  // Writes the files to `folder` on rank 0. `loader` may be null if batches do not come from one.
  // All arguments passed by reference must outlive the profiler.
  Profiler(ProfileOptions options, const Config& config, comm::Communicator& communicator,
           Step& step, data::Loader* loader, std::filesystem::path folder);

  // Returns whether the window must be opened before this step, counted as in StepWindow: it starts
  // here, or the run has resumed within it.
  bool opens_before(int64_t step) const;
  void open();
  bool is_open() const { return collector_ != nullptr; }
  bool closes_after(int64_t step) const { return is_open() && step >= options_.window.last; }

  // Must be called for each step of the window: when its batch, requested at `asked`, has arrived,
  // and when the step is done.
  void fetched(int64_t step, Clock::time_point asked);
  void done(int64_t step, const StepTimeline& timeline);

  // Gathers the events of all ranks, measures the peaks and writes the files. Must be called after
  // done() for all steps of the window.
  struct Outcome {
    std::string table;    // on rank 0
    std::string problem;  // why a file could not be written; empty if all were
  };
  Outcome close();

  // Returns why the run has profiled no steps, for messages; empty if it has. Call at the end of a
  // run.
  std::string why_nothing() const;

 private:
  std::string title() const;
  nlohmann::json metadata(const Peaks& peaks) const;
  Peaks mean_peaks();

  ProfileOptions options_;
  const Config& config_;
  comm::Communicator& communicator_;
  Step& step_;
  data::Loader* loader_;
  std::filesystem::path folder_;
  std::vector<ClockOffset> clocks_;            // by rank
  double device_uncertainty_ = 0;              // seconds, between the clocks of device and host
  std::unique_ptr<TraceCollector> collector_;  // null outside the window
  StepWindow seen_{.first = 0, .last = 0};     // the steps that were profiled
};

}  // namespace trireme::train
