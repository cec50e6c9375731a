#include <fmt/format.h>
#include <fmt/ranges.h>

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
  nlohmann::json json = {{"model", train::model_name(config.run)},
                         {"step", of.state.step},
                         {"samples", result.samples},
                         {"eval_loss", result.loss},
                         {"seconds", result.seconds},
                         {"bad_records", result.bad.count}};
  if (of.classifies) {
    json["eval_accuracy"] = result.accuracy;
    json["eval_top5"] = result.top5;
  }
  fmt::print("{}\n", train::json_text(json));
}

void print_text(const train::Config& config, const train::CheckpointEvaluation& of) {
  const train::Evaluation& result = of.evaluation;
  fmt::print("{} after step {}: ", train::model_name(config.run), of.state.step);
  if (result.details) {
    fmt::print("{:.2f}% right, {:.2f}% among the first five, ", 100 * result.accuracy,
               100 * result.top5);
  }
  fmt::print("loss {:.4f}, {} samples in {}\n", train::PlainNumber{result.loss}, result.samples,
             format_duration(result.seconds));
  if (result.bad.count > 0) {
    fmt::print("{} bad record(s) left out; the first: {}\n", result.bad.count,
               result.bad.first.front());
  }
}

std::string percent(int64_t part, int64_t whole) {
  return whole == 0 ? "-" : fmt::format("{:.2f}%", 100.0 * double(part) / double(whole));
}

// Of each class: how many of its samples are found, and how many that are taken for it are of it.
void print_classes(const std::vector<std::vector<int64_t>>& confusion,
                   const std::vector<std::string>& names) {
  Table table({{"class"},
               {"samples", /*number=*/true},
               {"recall", /*number=*/true},
               {"precision", /*number=*/true},
               {"most often taken for"}});
  for (size_t label = 0; label < confusion.size(); ++label) {
    const std::vector<int64_t>& row = confusion[label];
    int64_t samples = 0, taken = 0;
    size_t other = label == 0 ? 1 : 0;
    for (size_t c = 0; c < row.size(); ++c) {
      samples += row[c];
      taken += confusion[c][label];
      if (c != label && row[c] > row[other]) other = c;
    }
    table.add(
        {class_text(names, static_cast<int64_t>(label)), std::to_string(samples),
         percent(row[label], samples), percent(row[label], taken),
         row[other] == 0
             ? ""
             : fmt::format("{} ({})", class_text(names, static_cast<int64_t>(other)), row[other])});
  }
  fmt::print("{}", table.fitting());
}

void print_details(const train::CheckpointEvaluation& of) {
  const auto& details = of.evaluation.details;
  if (!details) throw ConfigError("--details", "is for networks that tell classes apart");
  if (details->confusion.empty()) {
    fmt::print("more than {} classes: no table of them\n", train::kMostConfused);
  } else {
    print_classes(details->confusion, of.class_names);
  }
  for (const train::Mistake& mistake : details->mistakes) {
    const std::string predicted =
        mistake.predicted == train::kNothing
            ? "outputs that are not finite"
            : fmt::format("taken for {} ({:.1f}%)", class_text(of.class_names, mistake.predicted),
                          100 * mistake.probability);
    fmt::print("{}, sample {}: {}, {}\n", mistake.where, mistake.index,
               class_text(of.class_names, mistake.label), predicted);
  }
}

// Into the run's folder, unless it says something about other samples: for its report, or, of a
// checkpoint that the user has named, beside that.
void save(const EvalOptions& options, const train::RunFolder& run,
          const train::CheckpointEvaluation& of) {
  const auto write_to = [&](const std::filesystem::path& file) {
    train::write_evaluation(file, of.evaluation, of.state.step, of.state.epoch, of.class_names);
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
                   "How each class is found, and the surest mistakes");
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
