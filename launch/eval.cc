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
#include "data/trained_on.h"
#include "launch/cli.h"
#include "launch/commands.h"
#include "launch/data.h"
#include "launch/options.h"
#include "launch/table.h"
#include "trainer/base/json.h"
#include "trainer/config/run_folder.h"
#include "trainer/infer/evaluate_checkpoint.h"
#include "trainer/report/evaluation_file.h"
#include "trainer/report/record_fields.h"
#include "trainer/report/sample_facts.h"

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
  fmt::print("{} after step {}: {}, {} samples in {}\n", train::model_name(config.run),
             of.state.step, train::metrics_text(result.metrics), result.samples,
             format_duration(result.seconds));
  if (result.bad.count > 0) {
    fmt::print("{} bad record(s) left out; the first: {}\n", result.bad.count,
               result.bad.first.front());
  }
}

std::string percent(double ratio) { return fmt::format("{:.2f}%", 100 * ratio); }

// "cat (12)"; empty where all samples of the class are found or predicted as nothing.
std::string most_often_taken_for(const std::vector<int64_t>& row, size_t label,
                                 const std::vector<std::string>& names) {
  size_t other = label == 0 ? 1 : 0;
  for (size_t c = 0; c < row.size(); ++c) {
    if (c != label && row[c] > row[other]) other = c;
  }
  if (row[other] == 0) return "";
  return fmt::format("{} ({})", class_text(names, static_cast<int64_t>(other)), row[other]);
}

// As scikit-learn's classification_report; `confusion` may be empty.
void print_classes(const train::Evaluation& evaluation,
                   const std::vector<std::vector<int64_t>>& confusion,
                   const std::vector<std::string>& names) {
  Table table({{"class"},
               {"precision", /*number=*/true, 3},
               {"recall", /*number=*/true, 3},
               {"F1", /*number=*/true, 3},
               {"support", /*number=*/true, 2},
               {confusion.empty() ? "" : "most often taken for", /*number=*/false, 1}});
  const auto add = [&](const std::string& name, double precision, double recall, double f1,
                       int64_t support, const std::string& other) {
    table.add(
        {name, percent(precision), percent(recall), percent(f1), std::to_string(support), other});
  };
  for (size_t label = 0; label < evaluation.classes.size(); ++label) {
    const train::ClassScores& of_class = evaluation.classes[label];
    add(class_text(names, static_cast<int64_t>(label)), of_class.precision(), of_class.recall(),
        of_class.f1(), of_class.support,
        confusion.empty() ? "" : most_often_taken_for(confusion[label], label, names));
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
        mistake.predicted == train::kNothing
            ? "outputs that are not finite"
            : fmt::format("taken for {} ({:.1f}%)", class_text(names, mistake.predicted),
                          100 * mistake.probability);
    fmt::print("{}, sample {}: {}, {}\n", mistake.where, mistake.index,
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
               outputs[i].r2 ? fmt::format("{:.4f}", train::PlainNumber{*outputs[i].r2}) : ""});
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
  } else if (evaluation.metrics.accuracy) {
    fmt::print("no table of classes: there is one for 2 to {} of them\n", train::kMaxScoredClasses);
  }
  if (evaluation.details) print_mistakes(evaluation.details->mistakes, of.output_names);
}

// Into the run's folder, unless it says something about other samples: for its report, or, of a
// checkpoint that the user has named, beside that.
void save(const EvalOptions& options, const train::RunFolder& run,
          const train::CheckpointEvaluation& of) {
  const auto write_to = [&](const std::filesystem::path& file) {
    train::write_evaluation(file, of.evaluation, of.state.step, of.state.epoch, of.output_names);
  };
  if (!options.out.empty()) return write_to(options.out);
  if (!options.data.empty()) return;
  try {
    const std::string name = (std::filesystem::path(options.path) / "").parent_path().filename();
    const bool of_checkpoint = name.starts_with("step-");
    write_to(of_checkpoint ? run.path / ("evaluation-" + name + ".json") : run.evaluation());
  } catch (const Error& error) {  // somebody else's run
    fmt::print(stderr, "warning: {}\n", error.what());
  }
}

int evaluate(const EvalOptions& options, comm::Communicator& communicator) {
  train::RunFolder run;
  comm::together(communicator, [&] { run = train::find_run(options.checkpoint()); });
  train::Config config =
      load_config_together(communicator, run.config().string(), options.all_assignments());
  std::optional<train::SampleFacts> trained_on;
  data::TableColumns columns;
  comm::together(communicator, [&] {
    const bool other = !options.data.empty();
    if (!other && !std::filesystem::exists(run.samples())) return;  // its data says the same
    const train::SampleFacts facts = train::read_sample_facts(run.path, config);
    columns = facts.columns;
    if (!other) return;
    trained_on = facts;
    *config.run.mutable_data() = data::other_data(config.run.data(), facts.spec, options.data);
  });
  const train::CheckpointEvaluation result = train::evaluate_checkpoint(
      config, communicator, options.checkpoint(), trained_on, /*with_details=*/true, columns);
  if (communicator.rank() != 0) return 0;
  if (!result.data_changes.empty()) {
    fmt::print(stderr,
               "warning: the evaluation data is not what the run of this checkpoint had: {}\n",
               fmt::join(result.data_changes, "; "));
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
  ArgumentParser command = app.add_command("eval", "Test a trained network");
  options->add_path(command);
  options->add_to(command);
  options->add_best(command);
  command.add_option(
      "--data", options->data,
      "Other samples than the run's: a folder with one for each class, tar shards, a "
      "CSV file, or the root of files such as the run's");
  command.add_flag("--details", options->details,
                   "How each class is found, and the surest mistakes; in a regression, how far off "
                   "each output is");
  command.add_flag("--json", options->json, "One JSON object");
  command.add_option(
      "-o,--out", options->out,
      "Where confusion matrix and mistakes go, instead of RUN/evaluation.json, or of "
      "RUN/evaluation-step-N.json for the checkpoint step-N");
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
