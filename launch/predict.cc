// `trireme predict`: applies a trained network to images or rows of numbers.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "data/loader.h"
#include "data/unlabeled.h"
#include "launch/cli.h"
#include "launch/commands.h"
#include "launch/data.h"
#include "launch/options.h"
#include "launch/output_file.h"
#include "trainer/base/json.h"
#include "trainer/config/device.h"
#include "trainer/config/inputs.h"
#include "trainer/config/loading.h"
#include "trainer/infer/predictor.h"
#include "trainer/infer/trained_model.h"
#include "trainer/report/sample_info.h"
#include "trainer/step/probabilities.h"

namespace trireme::cli {
namespace {

using Json = nlohmann::json;

struct PredictOptions : ConfigOptions, CheckpointOptions {
  std::vector<std::string> inputs;
  std::optional<int64_t> top;  // default: 5, or for CSV a column for each class
  std::string format = "text";
  std::string out;
  int64_t batch = 32;
  int threads = 0;
  bool logits = false;
  bool skip_bad = false;
};

// Writes predictions in one of the output formats.
class Writer {
 public:
  Writer(const PredictOptions& options, const train::SampleInfo& info, int64_t outputs)
      : logits_(options.logits),
        classifies_(info.spec.classes > 0),
        top_(static_cast<int>(std::min<int64_t>(options.top.value_or(5), outputs))),
        by_class_(!options.top),
        outputs_(outputs),
        names_(info.spec.classes > 0 ? info.class_names : info.columns.label_names()),
        format_(options.format),
        file_(options.out) {
    if (format_ == "csv") file_.write(header());
  }

  void add(const std::string& name, std::span<const float> numbers) {
    if (format_ == "jsonl") return file_.write(jsonl(name, numbers));
    if (format_ == "csv") return file_.write(csv(name, numbers));
    file_.write(text(name, numbers));
  }

  void finish() { file_.finish(); }

 private:
  bool all_numbers() const { return logits_ || !classifies_; }

  struct Ranked {
    int number;
    std::string name;
    double probability;
  };
  std::vector<Ranked> rank(std::span<const float> logits) const {
    const std::vector<double> probabilities = train::softmax(logits);
    std::vector<Ranked> ranked;
    for (const int c : train::top_k(logits, top_)) {
      ranked.push_back({c, class_text(names_, c), probabilities[c]});
    }
    return ranked;
  }

  std::string text(const std::string& name, std::span<const float> numbers) const {
    if (all_numbers()) return fmt::format("{}: {:.6g}\n", name, fmt::join(numbers, " "));
    std::string lines = name + "\n";
    for (const Ranked& one : rank(numbers)) {
      lines += fmt::format("  {:6.2f}%  {}\n", 100 * one.probability, printable(one.name));
    }
    return lines;
  }

  std::string jsonl(const std::string& name, std::span<const float> numbers) const {
    Json line = {{"name", name}};
    if (all_numbers()) {
      line[classifies_ ? "logits" : "values"] = std::vector<float>(numbers.begin(), numbers.end());
    } else {
      for (const Ranked& one : rank(numbers)) {
        line["top"].push_back(
            {{"class", one.number}, {"name", one.name}, {"probability", one.probability}});
      }
    }
    return train::json_text(std::move(line)) + "\n";
  }

  static std::string quoted(const std::string& field) {
    if (field.find_first_of(",\"\r\n") == field.npos) return field;
    std::string text = "\"";
    for (const char c : field) text += c == '"' ? "\"\"" : std::string(1, c);
    return text + "\"";
  }

  std::string header() const {
    std::string line = "name";
    if (all_numbers() || by_class_) {
      for (size_t i = 0; i < outputs_; ++i) {
        const bool named = classifies_ || i < names_.size();
        const std::string name =
            named ? class_text(names_, static_cast<int64_t>(i)) : fmt::format("value_{}", i);
        line += "," + quoted((all_numbers() ? "" : "probability_") + name);
      }
    } else {
      for (int i = 1; i <= top_; ++i) line += fmt::format(",class_{0},probability_{0}", i);
    }
    return line + "\n";
  }

  std::string csv(const std::string& name, std::span<const float> numbers) const {
    std::string line = quoted(name);
    if (all_numbers()) {
      for (const float number : numbers) line += fmt::format(",{}", train::PlainNumber{number});
    } else if (by_class_) {
      for (const double probability : train::softmax(numbers)) {
        line += fmt::format(",{:.6g}", train::PlainNumber{probability});
      }
    } else {
      for (const Ranked& one : rank(numbers)) {
        line += fmt::format(",{},{:.6g}", quoted(one.name), train::PlainNumber{one.probability});
      }
    }
    return line + "\n";
  }

  const bool logits_;
  const bool classifies_;
  const int top_;
  const bool by_class_;  // CSV has a column for each class
  const size_t outputs_;
  const std::vector<std::string> names_;
  const std::string format_;
  OutputFile file_;
};

// Prints the inputs that could not be read. Returns true if there were any.
bool report_bad_records(const data::BadRecords& opened, const data::BadRecords& read) {
  for (const data::BadRecords& bad : {opened, read}) {
    for (const std::string& one : bad.first) {
      fmt::print(stderr, "skipped: {}\n", printable_message(one));
    }
  }
  const int64_t count = opened.count + read.count;
  if (count > 0) fmt::print(stderr, "{} input(s) could not be read\n", count);
  return count > 0;
}

data::LoaderOptions loading(const train::Config& config, comm::Communicator& communicator,
                            const data::Dataset& dataset, const Device& device, int64_t rows) {
  data::LoaderOptions options = train::loader_options(
      config, communicator, dataset, train::spare_cores(config, communicator, device));
  options.order.shuffle = false;
  options.global_batch = rows;
  options.capacity = rows;
  options.max_bad_records = data::kUnlimitedBadRecords;
  options.progress = {};
  return options;
}

train::TrainedRun find(const PredictOptions& options) {
  std::vector<std::string> assignments = options.all_assignments();
  if (options.threads > 0) assignments.push_back(fmt::format("train.threads={}", options.threads));
  train::TrainedRun run =
      train::find_trained_run(options.checkpoint(), assignments, train::warn_on_stderr);
  auto* parallel = run.config.run.mutable_parallel();
  parallel->set_stages(1);  // this process computes all of the network
  parallel->clear_cut_after();
  return run;
}

// Throws ConfigError if the output is one of the samples, such as an image in a folder.
void check_output(const std::string& out, const data::Dataset& dataset) {
  std::error_code none;
  if (out.empty() || !std::filesystem::is_regular_file(out, none)) return;
  for (int64_t i = 0; i < dataset.size(); ++i) require_another_file(out, dataset.where(i));
}

int predict(const PredictOptions& options) {
  for (const std::string& input : options.inputs) require_another_file(options.out, input);
  const train::TrainedRun run = find(options);
  require_another_file(options.out, run.folder);
  const train::Config& config = run.config;
  require_another_file(options.out, config.run);
  const train::SampleInfo info = train::samples_of(run);
  if (info.spec.has_token_labels()) {
    throw ConfigError(options.checkpoint(),
                      config.run.data().has_mask()
                          ? "predicts masked tokens; predict is for networks with one label or "
                            "number per sample"
                          : "is a language model, which continues text: use trireme generate");
  }
  DataConfig inputs = config.run.data();
  train::use_run_tokenizer(run.folder.path, info, inputs);
  const auto dataset = data::open_unlabeled(options.inputs, inputs, info.spec, info.columns);
  check_output(options.out, *dataset);
  const auto alone = comm::create_local_communicator();
  const auto device = train::create_device(config, *alone);
  const auto backend = train::create_backend(config, *device);
  const int64_t rows = std::min(options.batch, dataset->size());
  const train::TrainedModel model(config, *backend, info.spec, run.checkpoint, rows,
                                  train::BatchNormMode::kFolded);
  const std::string problem = train::padding_problem(config, model.graph(), *dataset);
  if (!problem.empty()) train::warn_on_stderr(problem);
  train::Predictor predictor(model, *backend, rows);
  Writer writer(options, info, predictor.outputs());
  data::Loader loader(*dataset, *device, loading(config, *alone, *dataset, *device, rows));
  int64_t not_finite = 0;
  std::string first_not_finite;
  loader.start(0, 0);
  for (int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
    const data::Batch& batch = loader.next();
    const std::span<const float> numbers = predictor.run(batch.inputs, batch.rows);
    const size_t each = predictor.outputs();
    for (int64_t row = 0; row < batch.rows; ++row) {
      const std::string name = printable(dataset->where(batch.samples[row]));
      const auto outputs = numbers.subspan(row * each, each);
      if (!std::ranges::all_of(outputs, [](float output) { return std::isfinite(output); }) &&
          not_finite++ == 0) {
        first_not_finite = name;
      }
      writer.add(name, outputs);
    }
  }
  writer.finish();
  if (not_finite > 0) {
    fmt::print(stderr, "warning: {} sample(s) have outputs that are not finite; the first: {}\n",
               not_finite, first_not_finite);
  }
  const bool bad = report_bad_records(dataset->bad_records(), loader.bad_records());
  return static_cast<int>(bad && !options.skip_bad ? ExitCode::kBadData : ExitCode::kDone);
}

}  // namespace

void add_predict(ArgumentParser app, Command& chosen) {
  auto options = std::make_shared<PredictOptions>();
  ArgumentParser command =
      app.add_command("predict", "Apply a trained network to images, tables or texts");
  options->add_path(command);
  command
      .add_option("INPUT", options->inputs,
                  "Images (JPEG, PNG), folders or tar files of images, tables of numbers (*.csv, "
                  "*.npy), or texts (*.csv, *.tsv, *.jsonl, folders of *.txt, or a file each)")
      .required();
  command
      .add_option("--top", options->top,
                  "Print the N most probable classes of each input (default: 5; for csv, a column "
                  "with the probability of each class)")
      .positive()
      .metavar("N");
  command.add_option("--format", options->format, "Output format")
      .one_of({"text", "jsonl", "csv"})
      .show_default();
  command.add_option("-o,--out", options->out, "Output file (default, and -: standard output)");
  command.add_option("--batch", options->batch, "Batch size").between(1, 1 << 20).show_default();
  command.add_option("--threads", options->threads, "Number of threads (default: all cores)")
      .between(1, 1024);
  options->add_best(command);
  command.add_flag("--logits", options->logits,
                   "Print all outputs of the network instead of the probabilities of classes");
  command.add_flag(
      "--skip-bad", options->skip_bad,
      "Exit with 0 even if some inputs could not be read (default: 3). Each path must exist");
  options->add_to(command);
  command.epilog(R"(Examples:
  trireme predict runs/imagenet cat.jpg dog.png
  trireme predict runs/imagenet photos/ --top 1 --format csv -o photos.csv
  trireme predict runs/titanic passengers.csv --format csv -o survival.csv
  trireme predict runs/imagenet photos.tar --format jsonl --batch 64

With --format csv, the columns are `name` and for each class
`probability_NAME`, in the order of the classes; with --top, `class_1`,
`probability_1`, `class_2` and so on, the most probable class first. The output
file appears when it is complete.
Inputs that cannot be read are named on standard error, and the exit code is
then 3.)");
  command.on_chosen(
      [options, &chosen] { chosen.run = on_one_rank([options] { return predict(*options); }); });
}

}  // namespace trireme::cli
