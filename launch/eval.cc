#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/control.h"
#include "core/text.h"
#include "data/external_data.h"
#include "launch/cli.h"
#include "launch/commands.h"
#include "launch/data.h"
#include "launch/message.h"
#include "launch/options.h"
#include "launch/output_file.h"
#include "launch/table.h"
#include "trainer/base/json.h"
#include "trainer/infer/evaluate_checkpoint.h"
#include "trainer/infer/trained_model.h"
#include "trainer/report/evaluation_file.h"
#include "trainer/report/record_fields.h"
#include "trainer/report/sample_info.h"
#include "trainer/step/rank_consistency.h"

namespace trireme::cli {
namespace {

struct EvalOptions : ConfigOptions, CheckpointOptions {
  std::string data;
  std::string out;
  bool json = false;
  bool details = false;
};

void print_json(const train::Config& config, const train::CheckpointEvaluation& of) {
  const train::Evaluation& result = of.evaluation;
  nlohmann::ordered_json json = {{"model", train::model_name(config.run)},
                                 {"step", of.state.step},
                                 {"samples", result.samples}};
  train::put_metrics(json, "eval_", result.metrics);
  json["seconds"] = result.seconds;
  json["bad_records"] = result.bad.count;
  fmt::print("{}\n", train::json_text(json));
}

void print_text(const train::Config& config, const train::CheckpointEvaluation& of) {
  const train::Evaluation& result = of.evaluation;
  const std::string metrics = train::metrics_text(result.metrics);
  print_message("{} after step {}: {}, {} samples in {}\n", train::model_name(config.run),
                of.state.step,
                metrics.empty() ? "nothing measured, since no label counts" : metrics,
                result.samples, format_duration(result.seconds));
  if (result.bad.count > 0) {
    print_message("{} bad record(s) skipped; the first: {}\n", result.bad.count,
                  result.bad.first.front());
  }
}

std::string percent(double ratio) { return fmt::format("{:.2f}%", 100 * ratio); }

// Returns the class that the samples of `label` were most often mistaken for, with the number of
// samples: "cat (12)". Returns "" if none were.
std::string most_confused_class(const std::vector<int64_t>& row, size_t label,
                                const std::vector<std::string>& names) {
  size_t other = label == 0 ? 1 : 0;
  for (size_t c = 0; c < row.size(); ++c) {
    if (c != label && row[c] > row[other]) other = c;
  }
  if (row[other] == 0) return "";
  return fmt::format("{} ({})", class_text(names, static_cast<int64_t>(other)), row[other]);
}

// Prints a table like that of scikit-learn's classification_report. `confusion` may be empty.
void print_classes(const train::Evaluation& evaluation,
                   const std::vector<std::vector<int64_t>>& confusion,
                   const std::vector<std::string>& names) {
  Table table({{"class"},
               {"precision", /*number=*/true, 3},
               {"recall", /*number=*/true, 3},
               {"F1", /*number=*/true, 3},
               {"support", /*number=*/true, 2},
               {confusion.empty() ? "" : "most confused with", /*number=*/false, 1}});
  const auto add = [&](const std::string& name, double precision, double recall, double f1,
                       int64_t support, const std::string& other) {
    table.add(
        {name, percent(precision), percent(recall), percent(f1), std::to_string(support), other});
  };
  for (size_t label = 0; label < evaluation.classes.size(); ++label) {
    const train::ClassScores& of_class = evaluation.classes[label];
    add(class_text(names, static_cast<int64_t>(label)), of_class.precision(), of_class.recall(),
        of_class.f1(), of_class.support,
        confusion.empty() ? "" : most_confused_class(confusion[label], label, names));
  }
  const train::EvaluationMetrics& metrics = evaluation.metrics;
  if (metrics.macro_f1) {
    add("macro average", *metrics.macro_precision, *metrics.macro_recall, *metrics.macro_f1,
        evaluation.samples, "");
  }
  fmt::print("{}", table.fitting());
}

void print_mistakes(const std::vector<train::Mistake>& mistakes,
                    const std::vector<std::string>& names) {
  for (const train::Mistake& mistake : mistakes) {
    const std::string predicted =
        mistake.predicted == train::kNoClass
            ? "outputs that are not finite"
            : fmt::format("predicted as {} ({:.1f}%)", class_text(names, mistake.predicted),
                          100 * mistake.probability);
    fmt::print("{}, sample {}: {}, {}\n", printable(mistake.where), mistake.index,
               class_text(names, mistake.label), predicted);
  }
}

void print_outputs(const std::vector<train::OutputScores>& outputs,
                   const std::vector<std::string>& names) {
  Table table(
      {{"output"}, {"MAE", /*number=*/true}, {"RMSE", /*number=*/true}, {"R2", /*number=*/true}});
  const size_t listed = std::min(outputs.size(), train::kMaxListedOutputs);
  for (size_t i = 0; i < listed; ++i) {
    table.add({class_text(names, static_cast<int64_t>(i)),
               fmt::format("{:.4g}", train::PlainNumber{outputs[i].mae}),
               fmt::format("{:.4g}", train::PlainNumber{outputs[i].rmse}),
               outputs[i].r2 ? train::loss_text(*outputs[i].r2) : ""});
  }
  fmt::print("{}", table.fitting());
  if (listed < outputs.size()) fmt::print("and {} more\n", outputs.size() - listed);
}

void print_details(const train::CheckpointEvaluation& of) {
  const train::Evaluation& evaluation = of.evaluation;
  if (!evaluation.outputs.empty()) print_outputs(evaluation.outputs, of.output_names);
  if (!evaluation.classes.empty()) {
    print_classes(
        evaluation,
        evaluation.details ? evaluation.details->confusion : std::vector<std::vector<int64_t>>(),
        of.output_names);
  } else if (evaluation.metrics.accuracy && !evaluation.metrics.perplexity) {
    fmt::print("no table of classes: it is printed for 2 to {} classes\n",
               train::kMaxScoredClasses);
  }
  if (evaluation.details) print_mistakes(evaluation.details->mistakes, of.output_names);
}

// Writes the evaluation to --out or else to the run's folder, where `trireme report` reads it. A
// checkpoint named on the command line gets a file of its own. Writes nothing to the run's folder
// for other data (--data).
void save(const EvalOptions& options, const train::RunFolder& run,
          const train::CheckpointEvaluation& of) {
  const auto write_to = [&](const std::filesystem::path& file) {
    train::write_evaluation(file, of.evaluation, of.state.step, of.state.epoch, of.output_names);
  };
  if (!options.out.empty()) return write_to(options.out);
  if (!options.data.empty()) return;
  try {
    const std::string name = (std::filesystem::path(options.path) / "").parent_path().filename();
    const bool is_checkpoint = name.starts_with("step-");
    write_to(is_checkpoint ? run.path / ("evaluation-" + name + ".json") : run.evaluation());
  } catch (const Error& error) {  // for example, a run of another user
    train::warn_on_stderr(error.what());
  }
}

// Finds the same checkpoint on every rank. A run in progress may delete it before all ranks have
// opened it; then looks for a newer one.
train::TrainedRun find_together(const EvalOptions& options, comm::Communicator& communicator) {
  const bool chooses = communicator.rank() == 0;
  train::TrainedRun run;
  const auto find = [&](const std::string& path) {
    run = train::find_trained_run(path, options.all_assignments(), train::warn_on_stderr);
  };
  for (bool found = false; !found;) {
    comm::together(communicator, [&] {
      if (chooses) find(options.checkpoint());
    });
    const std::string chosen = comm::broadcast(communicator, run.checkpoint.path.string(), 0);
    try {
      comm::together(communicator, [&] {
        if (!chooses) find(chosen);
      });
      found = true;
    } catch (const comm::AgreedError&) {
      const bool deleted = chooses && !std::filesystem::exists(chosen);
      if (comm::broadcast(communicator, deleted ? "yes" : "", 0).empty()) throw;
    }
  }
  train::require_same_properties(communicator, train::program_properties(run.config.run));
  return run;
}

// Throws ConfigError if --out is also an input. The run's evaluation.json is not one.
void refuse_input_as_output(const EvalOptions& options, const train::RunFolder& run,
                            const RunConfig& config) {
  std::error_code none;
  if (std::filesystem::equivalent(options.out, run.evaluation(), none)) return;
  require_another_file(options.out, options.data);
  require_another_file(options.out, run);
  require_another_file(options.out, config);
}

int evaluate(const EvalOptions& options, comm::Communicator& communicator) {
  const train::TrainedRun trained = find_together(options, communicator);
  const train::RunFolder& run = trained.folder;
  train::Config config = trained.config;
  std::optional<train::SampleInfo> trained_on;
  data::TableColumns columns;
  comm::together(communicator, [&] {
    refuse_input_as_output(options, run, config.run);
    const bool other = !options.data.empty();
    if (!other && !std::filesystem::exists(run.samples())) return;  // the data is opened anyway
    const train::SampleInfo info = train::samples_of(trained);
    columns = info.columns;
    if (!other) return;
    trained_on = info;
    *config.run.mutable_data() = data::config_for_path(config.run.data(), info.spec, options.data);
    train::use_run_tokenizer(run.path, info, *config.run.mutable_data());
    refuse_input_as_output(options, run, config.run);
  });
  const train::CheckpointEvaluation result = train::evaluate_checkpoint(
      config, communicator, trained.checkpoint, trained_on, /*with_details=*/true, columns);
  if (communicator.rank() != 0) return 0;
  if (!result.data_changes.empty()) {
    train::warn_on_stderr(
        fmt::format("the evaluation data differs from that of the checkpoint's run: {}",
                    fmt::join(result.data_changes, "; ")));
  }
  save(options, run, result);
  if (options.json) {
    print_json(config, result);
  } else {
    print_text(config, result);
  }
  if (options.details) print_details(result);
  return 0;
}

}  // namespace

void add_eval(ArgumentParser app, Command& chosen) {
  auto options = std::make_shared<EvalOptions>();
  ArgumentParser command = app.add_command("eval", "Evaluate a trained network");
  options->add_path(command);
  options->add_to(command);
  options->add_best(command);
  command.add_option(
      "--data", options->data,
      "Evaluate on other data than the run's: a folder with one subfolder per class, tar shards, a "
      "CSV file, labeled texts (*.csv, *.tsv, *.jsonl), or a data.root with files like the run's");
  command.add_flag("--details", options->details,
                   "Also print the scores of each class and the most confident mistakes, or, for "
                   "regression, the errors of each output");
  command.add_flag("--json", options->json, "Print the metrics as one JSON object");
  command.add_option("-o,--out", options->out,
                     "File for the confusion matrix and mistakes (default: RUN/evaluation.json, or "
                     "RUN/evaluation-step-N.json for the checkpoint step-N)");
  command.epilog(R"(Examples:
  trireme eval runs/digits --best --details
  mpirun -np 4 trireme eval runs/imagenet --data /data/imagenet-v2)");
  command.on_chosen([options, &chosen] {
    chosen.run = [options](comm::Communicator& communicator) {
      return evaluate(*options, communicator);
    };
  });
}

}  // namespace trireme::cli
