// Makes what a run consists of. Whatever can be wrong with the configuration, the data and the
// network shows here, before the first step.
#pragma once

#include "comm/communicator.h"
#include "trainer/config/config.h"
#include "trainer/run/run_parts.h"
#include "trainer/run/run_start.h"
#include "trainer/run/run_stop.h"
#include "trainer/run/train.h"

namespace trireme::train {

class RunSetup {
 public:
  // Everything outlives it. The configuration is completed with what takes the data to know.
  RunSetup(Config& config, comm::Communicator& communicator, const TrainOptions& options,
           RunStop& stop, RunParts& parts)
      : config_(config),
        communicator_(communicator),
        options_(options),
        stop_(stop),
        parts_(parts),
        start_(config, communicator, options, parts) {}

  // Makes all parts but those of start_records(). All ranks call it together, and throw together.
  // False: some rank was told to stop on the way, which all look at between the stages.
  bool prepare();

  // Writes what the run is to its folder, begins its records and makes what they ask for. All ranks
  // call it together.
  void start_records();

  // Once all is saved: fills the step's arrays with those of the best checkpoint, where there is
  // one. Returns what they are of. All ranks call it together.
  SavedPosition load_best() { return start_.load_best(); }

 private:
  bool stage(void (RunSetup::*work)());
  void open_machine();
  void open_inputs();
  void require_least_room() const;
  void open_folder();
  std::string choose_folder();
  void compile();
  void make_loader();
  data::LoaderOptions in_order(data::LoaderOptions options) const;
  void resume();
  void make_saver();
  void write_descriptions(const std::string& environment);
  RunFacts facts() const;

  Config& config_;
  comm::Communicator& communicator_;
  const TrainOptions& options_;
  RunStop& stop_;
  RunParts& parts_;
  RunStart start_;
};

}  // namespace trireme::train
