// `trireme export`: what a run has learned, for other programs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "launch/commands.h"
#include "model/names.h"
#include "model/onnx/onnx.h"
#include "trainer/checkpoint.h"
#include "trainer/file.h"
#include "trainer/init_from.h"
#include "trainer/inputs.h"
#include "trainer/run_folder.h"
#include "trainer/safetensors.h"
#include "trainer/sample_facts.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

const std::map<std::string, NameStyle> kStyles = {{"trireme", NameStyle::kTrireme},
                                                  {"torchvision", NameStyle::kTorchvision},
                                                  {"huggingface", NameStyle::kHuggingFace}};

struct Options {
  std::string path;
  std::string out;
  bool best = false;
  bool no_normalise = false;
  bool softmax = false;
  NameStyle names = NameStyle::kTrireme;
};

struct Saved {
  Config config;
  SampleFacts facts;
  CheckpointState state;
  Weights weights;
};

Saved load(const Options& options) {
  const fs::path path =
      options.best ? fs::path(options.path) / "checkpoints" / "best" : fs::path(options.path);
  const RunFolder run = find_run(path);
  Saved saved;
  saved.config = load_config(run.config().string(), {});
  saved.facts = read_sample_facts(run.path, saved.config);
  const FoundCheckpoint found = find_checkpoint(
      path, [](const std::string& text) { fmt::print(stderr, "warning: {}\n", text); });
  saved.state = found.state;
  saved.weights = read_weights(found.path);
  return saved;
}

std::string to_onnx(const Saved& saved, const Options& options) {
  OnnxExportOptions wanted{.normalise = !options.no_normalise, .softmax = options.softmax};
  if (!saved.facts.class_names.empty()) {
    const nlohmann::json names = saved.facts.class_names;
    wanted.metadata.emplace_back(
        "classes", names.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  wanted.metadata.emplace_back("step", std::to_string(saved.state.step));
  wanted.metadata.emplace_back("epoch", std::to_string(saved.state.epoch));
  return to_onnx(saved.config.run.model(), model_input(saved.facts.spec), saved.weights, wanted);
}

std::string to_safetensors(const Saved& saved, NameStyle style) {
  if (style == NameStyle::kTorchvision && !has_torchvision_names(model_name(saved.config.run))) {
    throw ConfigError("--names", model_name(saved.config.run) + " is no network of torchvision");
  }
  std::vector<SafetensorsEntry> entries;
  size_t bytes = 0;
  for (const auto& [ours, weight] : saved.weights) {
    const std::optional<std::string> name = name_in(style, ours);
    if (!name) throw ConfigError("--names", "there is no such name for '" + ours + "'");
    entries.push_back({*name, weight.shape});
    bytes += weight.values.size() * sizeof(float);
  }
  std::string text = safetensors_header(entries);
  text.reserve(text.size() + bytes);
  for (const auto& [ours, weight] : saved.weights) {
    text.append(reinterpret_cast<const char*>(weight.values.data()),
                weight.values.size() * sizeof(float));
  }
  return text;
}

int run(const Options& options) {
  const std::string extension = fs::path(options.out).extension().string();
  const bool onnx = extension == ".onnx";
  if (!onnx && extension != ".safetensors") {
    throw ConfigError(options.out, "export writes *.onnx and *.safetensors");
  }
  if (onnx && options.names != NameStyle::kTrireme) {
    throw ConfigError("--names", "is for safetensors; ONNX keeps the names of layers");
  }
  if (!onnx && (options.softmax || options.no_normalise)) {
    throw ConfigError(options.out, "--softmax and --no-normalise are for ONNX");
  }
  const Saved saved = load(options);
  if (options.softmax && saved.facts.spec.classes == 0) {
    throw ConfigError("--softmax", "is for classes; this network predicts numbers");
  }
  const std::string text = onnx ? to_onnx(saved, options) : to_safetensors(saved, options.names);
  replace_durably(options.out, text);
  fmt::print("{}: {} after step {}, {}\n", options.out, model_name(saved.config.run),
             saved.state.step, format_bytes(static_cast<double>(text.size())));
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Command& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App& command =
      *app.add_subcommand("export", "Write a trained network as ONNX or safetensors");
  command
      .add_option("RUN_OR_CHECKPOINT", options->path, "Folder of a run, or one of its checkpoints")
      ->required();
  command.add_option("OUT", options->out, "The file to write: *.onnx or *.safetensors")->required();
  command.add_flag("--best", options->best, "The run's best checkpoint instead of its newest");
  command.add_flag("--no-normalise", options->no_normalise,
                   "ONNX without the normalisation of the data: the user of the model does it");
  command.add_flag("--softmax", options->softmax, "ONNX that gives probabilities, not logits");
  command.add_option("--names", options->names, "Safetensors by the names of this project")
      ->transform(CLI::CheckedTransformer(kStyles).description(""))
      ->type_name("{trireme,torchvision,huggingface}");
  command.footer(R"(Examples:
  trireme export runs/digits digits.onnx --best
  trireme export runs/resnet18 resnet18.safetensors --names torchvision)");
  command.callback(
      [options, &chosen] { chosen.run = on_one_rank([options] { return run(*options); }); });
}

}  // namespace trireme
