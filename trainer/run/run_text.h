// A run in lines for people: at its beginning and at its end.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/device.h"
#include "data/bad_records.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/config.h"
#include "trainer/config/run_folder.h"
#include "trainer/report/metrics.h"
#include "trainer/report/sinks/hub.h"

namespace trireme::train {

// What a run is, for its first lines.
struct RunFacts {
  Device* device = nullptr;  // outlives the reporter
  int64_t parameters = 0;
  int64_t trained_parameters = 0;  // of these
  std::string initial;             // what they begin with, where not with random numbers
  std::string training_data;
  std::string evaluation_data;
  data::BadRecords bad_records;  // left out when the files were opened
  int64_t samples_per_epoch = 0;
  int64_t steps_per_epoch = 0;  // with the present batch
  int64_t total_steps = 0;      // of the whole run
  int64_t classes = 0;          // of a sample; 0: regression
};

// What the run is, and from where it goes on.
std::vector<std::string> opening_lines(const RunConfig& run, int ranks, const RunFolder& folder,
                                       const RunFacts& facts,
                                       const std::optional<FoundCheckpoint>& resumed);

// Of a run that had nothing left to do. `why_early`: why it was stopped early, or empty.
std::string complete_line(const RunFolder& folder, const CheckpointState& state,
                          const std::string& why_early);

// What it came to, but for records that its sinks have dropped: those in lines of their own.
// `best_epoch`: of the best checkpoint, where the evaluation is of that.
std::vector<std::string> closing_lines(const Summary& summary, std::optional<int64_t> best_epoch);
std::vector<std::string> dropped_lines(std::span<const DropCounts::Count> counts);
// How a run that was stopped goes on.
std::string stopped_line(const RunFolder& folder);

}  // namespace trireme::train
