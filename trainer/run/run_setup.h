// Creates the components of a run. All errors in the configuration, the data and the network are
// reported here, before the first step.
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
  // Adds settings that depend on the data to `config`. All arguments must outlive this object.
  RunSetup(Config& config, comm::Communicator& communicator, const TrainOptions& options,
           RunStop& stop, RunParts& parts)
      : config_(config),
        communicator_(communicator),
        options_(options),
        stop_(stop),
        parts_(parts),
        start_(config, communicator, options, parts) {}

  // Creates all parts except those of start_records(). Between the stages, checks whether any rank
  // has been asked to stop, and if so, returns false. Throws on all ranks if it fails on any.
  // Collective.
  bool prepare();

  // Writes the description of the run to its folder, opens its records and creates the parts that
  // log to them. Collective.
  void start_records();

  // Loads the best checkpoint, if there is one, into the step's arrays. Must be called once all
  // saves are done. Returns the position at which the state in the arrays was reached. Collective.
  std::optional<BestCheckpoint> load_best() { return start_.load_best(); }

 private:
  bool stage(void (RunSetup::*work)());
  void open_machine();
  void open_inputs();
  void check_statistics(const BatchPlan& batch) const;
  void build_networks();
  void keep_stored_positions();
  void compare_samples();
  void require_min_memory() const;
  void open_folder();
  std::string choose_folder();
  double measured_peak();
  void compile();
  void create_loader();
  data::LoaderOptions training_loader_options(data::LoaderOptions options) const;
  void resume();
  void create_saver();
  void write_descriptions(const std::string& environment);
  RunInfo info() const;

  Config& config_;
  comm::Communicator& communicator_;
  const TrainOptions& options_;
  RunStop& stop_;
  RunParts& parts_;
  RunStart start_;
};

}  // namespace trireme::train
