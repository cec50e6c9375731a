// The lines that a run prints at its beginning and at its end.
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

class StepWork;

// The properties of a run that its first lines and its start record show.
struct RunInfo {
  Device* device = nullptr;  // must outlive the reporter
  int64_t parameters = 0;
  int64_t trained_parameters = 0;        // out of `parameters`
  std::vector<std::string> last_layers;  // of each pipeline stage but the last
  std::string recomputation;             // see recomputation_text
  std::string initial;  // source of the initial parameters; empty if they are random
  std::string padding;  // see padding_text
  std::string resume;   // the option --resume
  std::string training_data;
  std::string evaluation_data;
  data::BadRecords bad_records;  // skipped when the files were opened
  int64_t samples_per_epoch = 0;
  int64_t steps_per_epoch = 0;    // with the current batch size
  int64_t total_steps = 0;        // number of steps of the whole run
  int64_t tokens_per_sample = 0;  // 0 if samples do not consist of tokens
  Predictions predictions;
  const StepWork* work = nullptr;  // must outlive the reporter; null if nothing is known
};

// Returns the first lines: network, device, data, batch, and the checkpoint it resumes from, if
// any.
std::vector<std::string> opening_lines(const RunConfig& run, int ranks, const RunFolder& folder,
                                       const RunInfo& info,
                                       const std::optional<FoundCheckpoint>& resumed);

// Returns the line that reports that a run is already complete. `why_early` is why it was stopped
// early, or empty.
std::string complete_line(const RunFolder& folder, const CheckpointState& state,
                          const std::string& why_early);

// The position of the best checkpoint.
struct BestCheckpoint {
  int64_t step = 0;
  int64_t epoch = 0;
};

// Returns the last lines. `best` is the best checkpoint if that is the result of the run.
std::vector<std::string> closing_lines(const Summary& summary,
                                       const std::optional<BestCheckpoint>& best);
// Returns a line for each sink that has dropped records.
std::vector<std::string> dropped_lines(std::span<const DropCounts::Count> counts);
// Returns how to resume a run that was stopped.
std::string stopped_line(const RunFolder& folder, const std::string& resume);

}  // namespace trireme::train
