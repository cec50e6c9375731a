#include "trainer/run/run_start.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "comm/control.h"
#include "core/text.h"
#include "trainer/checkpoint/resume_check.h"
#include "trainer/config/monitor.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

// Names of tensors have no control characters.
std::string join(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, "\n"));
}

std::vector<std::string> split(const std::string& names) {
  std::vector<std::string> lines;
  std::istringstream in(names);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

int64_t RunStart::open_initial() {
  const bool never = options_.resume == "never";
  const std::vector<fs::path> own = never ? std::vector<fs::path>() : own_checkpoints();
  if (own.empty() && (never || options_.resume == "auto")) return open_init_from();
  if (!has_learned_positions(parts_.graph)) return 0;
  if (!own.empty()) {
    for (const fs::path& checkpoint : own) {
      try {
        return stored_positions(checkpoint / kModelFile, parts_.graph);
      } catch (const DataError&) {  // damaged: load() resumes from an older one, or reports it
        continue;
      }
    }
    return 0;
  }
  if (std::error_code none; !fs::exists(options_.resume, none)) return 0;  // load() reports it
  const FoundCheckpoint found = find_checkpoint(options_.resume, [](const std::string&) {});
  return stored_positions(found.path / kModelFile, parts_.graph);
}

int64_t RunStart::open_init_from() {
  if (!config_.run.model().has_init_from()) return 0;
  try {
    stored_ = read_stored_model(config_.run.model().init_from());
  } catch (const ConfigError& error) {
    throw config_.located(error);
  }
  return stored_positions(*stored_, parts_.graph);
}

void RunStart::fit_initial() {
  if (!stored_) return;
  initial_ = read_initial_values(std::move(*stored_), config_, parts_.graph, *parts_.training);
  stored_.reset();
}

// Returns the checkpoints in run_dir, newest first. Used before the run folder has been chosen.
std::vector<fs::path> RunStart::own_checkpoints() const {
  const RunFolder own{config_.run.run_dir()};
  if (own.path.empty()) return {};
  return Checkpoints(own.checkpoints(), 1).list();
}

void RunStart::load() {
  parts_.step->initialize();
  std::string found;
  comm::together(communicator_, [&] {
    if (communicator_.rank() == 0) found = load_on_rank_0();
  });
  found = broadcast(communicator_, found, 0);
  parts_.state.seed = config_.run.seed();
  parts_.state.data = parts_.data;
  if (config_.run.model().has_init_from() || !found.empty()) {
    broadcast_arrays();
    load_parts();
    parts_.step->parameters_changed();
  }
  if (found.empty()) return;
  const size_t cut = found.find('\0');
  resume_from(found.substr(0, cut), found.substr(cut + 1));
}

// Returns the path and the state of the checkpoint that the run resumes from, separated by a NUL,
// or "" if it starts from scratch.
std::string RunStart::load_on_rank_0() {
  std::optional<FoundCheckpoint>& resumed = parts_.resumed;
  resumed = choose_checkpoint();
  if (!resumed) {
    if (initial_) load_initial();
    parts_.step->restart_averages();
    return {};
  }
  // Compare the configuration first: a change of it may be why the data differs.
  const auto changes = check_changes(
      *resumed, {config_, parts_.graph, communicator_.size(), parts_.training->size()});
  compare_data();
  parts_.reporter->resume_changes(*resumed, changes);
  load_checkpoint(*resumed);
  drop_invalid_best(resumed->state);
  continue_from(*resumed);
  keep_best(resumed->state);
  return resumed->path.string() + '\0' + to_json(resumed->state);
}

std::optional<FoundCheckpoint> RunStart::choose_checkpoint() const {
  const fs::path own = parts_.folder.checkpoints();
  const Warn warning = [&](const std::string& text) { warn(text); };
  if (options_.resume == "auto") return newest_checkpoint(own, warning);
  if (options_.resume != "never") return checkpoint_of_path();
  if (!checkpoints().list().empty()) {
    throw ConfigError(
        config_.where("run_dir"),
        parts_.folder.path.string() +
            " already holds checkpoints, which --resume never would overwrite; remove them or "
            "choose another --run-dir");
  }
  checkpoints().remove_pointers();
  return std::nullopt;
}

// Returns the checkpoint that --resume names. If it belongs to another run, and this run has
// checkpoints of its own, which a start by the same command has saved, returns the newest of these.
std::optional<FoundCheckpoint> RunStart::checkpoint_of_path() const {
  const Warn warning = [&](const std::string& text) { warn(text); };
  const std::vector<std::string> words = {"auto", "never"};
  const std::string meant = did_you_mean(options_.resume, words);
  std::error_code none;
  const bool exists = fs::exists(options_.resume, none);
  const fs::path run = fs::weakly_canonical(parts_.folder.path);
  if (meant.empty() && run_of_checkpoint(options_.resume) != run) {
    if (auto own = newest_checkpoint(parts_.folder.checkpoints(), warning)) {
      warn(fmt::format("{} has checkpoints: the run goes on from the newest of them, not from {}",
                       parts_.folder.path.string(), options_.resume));
      return own;
    }
  }
  if (!exists) throw DataError("--resume " + options_.resume, "no such folder" + meant);
  return find_checkpoint(options_.resume, warning);
}

// Throws DataError if the data is known to differ from that of the checkpoint, unless the user
// accepts that.
void RunStart::compare_data() const {
  const FoundCheckpoint& resumed = *parts_.resumed;
  const std::string path = resumed.path.string();
  const std::optional<RunData>& saved = resumed.state.data;
  const std::string change = describe_data_change(resumed.state, *parts_.data);
  if (change.empty() && !saved) {
    warn(path + " does not record its data, so changes of the data cannot be detected");
  }
  if (change.empty()) return;
  if (!options_.accept_data_change) throw data_change_error(resumed, change);
  warn(path + ": " + change + "; accepted");
  if (config_.run.data().has_holdout() && saved && saved->evaluation != parts_.data->evaluation) {
    warn(
        "the samples held out for evaluation have changed: the network may have been trained on "
        "some "
        "of them, so evaluations may look better than they are");
  }
}

void RunStart::broadcast_arrays() const {
  const StateArrays& state = parts_.step->state();
  Stream& stream = parts_.step->stream();
  for (const auto arrays : {state.model(), state.optimizer()}) {
    for (const auto& array : arrays) {
      if (array.is_distributed()) continue;
      parts_.step->communicator().broadcast(array.data, array.elements, DType::kF32, 0, stream);
    }
  }
  stream.synchronize();
}

// Loads what every rank has. The rest follows in load_parts().
void RunStart::load_checkpoint(const FoundCheckpoint& checkpoint) {
  const StateArrays& state = parts_.step->state();
  load_model(checkpoint, state);
  parts_.step->restart_averages();
  load_optimizer(checkpoint, state);
  parts_to_load_ = distributed_tensors(checkpoint, state);
  read_part_ = reader_of(checkpoint, state);
}

void RunStart::load_initial() {
  load_initial_values(*initial_, parts_.step->state());
  parts_to_load_.clear();
  for (const std::string& name : StateArrays::distributed_names(parts_.step->state().model())) {
    if (initial_->weights.contains(name)) parts_to_load_.push_back(name);
  }
  read_part_ = [this](const StateArrays::Tensor& tensor) {
    return initial_->weights.at(tensor.name).values;
  };
}

// Loads the tensors of which ranks have different parts.
void RunStart::load_parts() {
  const StateArrays& state = parts_.step->state();
  const StateArrays::Read read = std::exchange(read_part_, {});  // which has open files
  if (!state.is_distributed()) return;
  const std::string names = broadcast(communicator_, join(parts_to_load_), 0);
  const std::vector<std::string> loaded = split(names);
  state.put_parts(loaded, read);
  const bool has_averages = std::ranges::any_of(loaded, [](const std::string& name) {
    return name.starts_with(kAveragePrefix + std::string("."));
  });
  if (state.parameters().is_distributed() && !has_averages) parts_.step->restart_averages();
}

// Sets the state of training. Called on all ranks.
void RunStart::resume_from(const std::string& path, const std::string& state_text) {
  parts_.resumed = {path, state_from_json(state_text, path)};
  CheckpointState& state = parts_.state;
  state = parts_.resumed->state;
  state.data = parts_.data;
  if (state.position >= parts_.training->size()) {  // the data has fewer samples than before
    ++state.epoch;
    state.position = 0;
  }
  Step& step = *parts_.step;
  if (state.loss_scale) step.optimizer().set_loss_scale(*state.loss_scale, step.stream());
}

// Removes the results of evaluations from the state if later ones cannot be compared with them,
// since they were of other samples or by another metric, or if the best is no longer kept.
void RunStart::drop_invalid_best(CheckpointState& state) const {
  const bool same_samples = !state.data || state.data->evaluation == parts_.data->evaluation;
  if (!same_samples) state.stopping.reset();  // which counts evaluations by a metric of its own
  const std::string metric = best_metric(config_.run, parts_.predictions);
  const bool same_metric = state.best && state.best->metric == metric;
  if (!same_samples || !same_metric || !config_.run.checkpoint().keep_best()) state.best.reset();
}

// Makes the checkpoint the newest in the run's folder. One of another run is copied, with that of
// its best evaluation, so that the run can go on and end with them.
void RunStart::continue_from(FoundCheckpoint& checkpoint) {
  const bool own =
      fs::equivalent(fs::absolute(checkpoint.path / ".."), parts_.folder.checkpoints());
  fs::path path = checkpoint.path;
  if (!own) path = checkpoints().adopt(checkpoint, best_beside(checkpoint));
  saved_ = checkpoints().continue_from(
      path, checkpoint.state.step, [&](const std::string& text) { parts_.reporter->alert(text); });
  if (own) checkpoint.path = *saved_;
}

// Returns the checkpoint of the best evaluation in the folder of a checkpoint of another run;
// nothing if it is that checkpoint itself or cannot be read.
std::optional<FoundCheckpoint> RunStart::best_beside(const FoundCheckpoint& checkpoint) const {
  const std::optional<BestEvaluation>& best = checkpoint.state.best;
  if (!best || checkpoint.state.is_best()) return std::nullopt;
  const fs::path folder = fs::canonical(checkpoint.path).parent_path();
  const fs::path path = folder / checkpoint_name(best->step);
  if (std::error_code none; !fs::exists(path, none)) return std::nullopt;
  try {
    return open_checkpoint(path);
  } catch (const DataError& error) {
    warn(error.what());
    return std::nullopt;
  }
}

// Makes `best` name the checkpoint of the best evaluation so far. If it is missing, the best of the
// later evaluations takes its place.
void RunStart::keep_best(CheckpointState& state) const {
  if (!state.best) return;
  const fs::path path = parts_.folder.checkpoints() / checkpoint_name(state.best->step);
  std::error_code none;
  if (fs::exists(path, none)) {
    const std::string problem = checkpoints().set_best(state.best->step);
    if (!problem.empty()) warn(problem);
    return;
  }
  parts_.reporter->alert(fmt::format(
      "the best checkpoint so far, {} with {} {:.6g}, is missing: the best of the evaluations from "
      "here on takes its place",
      path.string(), state.best->metric, state.best->value));
  state.best.reset();
}

std::optional<BestCheckpoint> RunStart::load_best() {
  std::string found;
  comm::together(communicator_, [&] {
    if (communicator_.rank() != 0) return;
    const std::optional<BestEvaluation>& saved = parts_.state.best;
    fs::path path;
    if (saved) path = parts_.folder.checkpoints() / checkpoint_name(saved->step);
    if (std::error_code none; !saved || !fs::exists(path, none)) {
      return warn("there is no best checkpoint, so the run ends with its last state");
    }
    const FoundCheckpoint best = open_checkpoint(path);
    // Averages, if it has them, also without optimizer.ema, as export, eval and predict.
    initial_ = InitialValues{read_model(best, parts_.graph), ""};
    load_initial();
    parts_.step->restart_averages();
    found = to_json(best.state);
  });
  found = broadcast(communicator_, found, 0);
  if (found.empty()) return std::nullopt;
  const CheckpointState state = state_from_json(found, "the best checkpoint");
  broadcast_arrays();
  load_parts();
  parts_.step->parameters_changed();
  return BestCheckpoint{state.step, state.epoch};
}

void require_newest_on_rank_0(comm::Communicator& communicator, const fs::path& checkpoints) {
  int64_t newest = -1;
  comm::together(communicator, [&] {
    // The other ranks of a host see the same.
    if (communicator.placement().local_rank == 0)
      newest = Checkpoints(checkpoints, 1).newest_step();
  });
  const std::vector<std::string> steps = all_gather(communicator, std::to_string(newest));
  const auto step_of = [&](size_t rank) { return std::stoll(steps[rank]); };
  size_t ahead = 0;
  for (size_t rank = 1; rank < steps.size(); ++rank) {
    if (step_of(rank) > step_of(ahead)) ahead = rank;
  }
  if (ahead == 0) return;
  const auto hosts = all_gather(communicator, communicator.placement().host_name);
  throw comm::AgreedError(
      fmt::format(
          "{}: rank {} (host {}) sees {} there, but rank 0 (host {}), which reads and writes "
          "checkpoints, sees {}: the hosts do not share this folder. Put run_dir on a file system "
          "that all hosts share, start rank 0 on host {}, or copy the newest checkpoint to host {}",
          checkpoints.string(), ahead, hosts[ahead], checkpoint_name(step_of(ahead)), hosts[0],
          step_of(0) < 0 ? "no checkpoint" : checkpoint_name(step_of(0)), hosts[ahead], hosts[0]),
      ExitCode::kBadData, 0);
}

}  // namespace trireme::train
