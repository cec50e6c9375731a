// `trireme export`: writes the trained network of a run for other programs.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "launch/cli.h"
#include "launch/commands.h"
#include "launch/input_description.h"
#include "launch/message.h"
#include "launch/options.h"
#include "launch/output_file.h"
#include "model/names.h"
#include "model/onnx/onnx.h"
#include "trainer/checkpoint/init_from.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/inputs.h"
#include "trainer/infer/trained_model.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

struct ExportOptions : CheckpointOptions {
  std::string out;
  bool no_normalize = false;
  InputRange range = InputRange::kStored;
  bool softmax = false;
  model::NameStyle names = model::NameStyle::kTrireme;
};

struct Saved {
  train::Config config;
  train::SampleInfo samples;
  train::CheckpointState state;
  model::Weights weights;
};

Saved load(const ExportOptions& options) {
  train::TrainedRun run = train::find_trained_run(options.checkpoint(), {}, train::warn_on_stderr);
  require_another_file(options.out, run.folder);
  require_another_file(options.out, run.config.run);
  Saved saved;
  saved.samples = train::samples_of(run);
  saved.weights = train::read_weights(run.checkpoint);
  saved.config = std::move(run.config);
  saved.state = std::move(run.checkpoint.state);
  return saved;
}

bool is_onnx(const ExportOptions& options) { return fs::path(options.out).extension() == ".onnx"; }

// Describes the input, and adds the model's name and the training progress to the metadata.
InputDescription describe(const Saved& saved, InputRange range) {
  InputDescription input = describe_input(saved.samples, saved.config.run.data(), range);
  input.metadata.emplace_back("model", train::model_name(saved.config.run));
  input.metadata.emplace_back("step", std::to_string(saved.state.step));
  input.metadata.emplace_back("epoch", std::to_string(saved.state.epoch));
  return input;
}

std::string to_onnx(const Saved& saved, const ExportOptions& options,
                    const InputDescription& input) {
  const data::SampleSpec& spec = saved.samples.spec;
  model::OnnxExportOptions onnx_options{.normalize = !options.no_normalize,
                                        .image = are_pixels(spec) && spec.input.shape.rank() == 3,
                                        .softmax = options.softmax,
                                        .metadata = input.metadata};
  if (options.range == InputRange::kUnit) onnx_options.input_unit = 255;
  return to_onnx(saved.config.run.model(), train::model_input(spec), saved.weights, onnx_options);
}

// Adds the tensor, or the parts of which the file stores one after the other.
void add_entries(model::NameStyle style, const std::string& ours, const std::string& name,
                 const Shape& shape, std::vector<train::SafetensorsEntry>& entries) {
  std::vector<model::Part> parts;
  if (style == model::NameStyle::kHuggingFace) parts = model::parts_of(name, shape);
  if (parts.empty()) entries.push_back({name, model::shape_in(style, ours, shape)});
  for (const model::Part& part : parts) {
    Shape rows = shape;
    rows[0] = part.rows;
    entries.push_back({part.name, rows});
  }
}

std::string to_safetensors(const Saved& saved, model::NameStyle style,
                           const InputDescription& input) {
  const std::string network = train::model_name(saved.config.run);
  if (style == model::NameStyle::kTorchvision && !model::has_torchvision_names(network)) {
    throw ConfigError("--names", network + " is not a network of torchvision");
  }
  if (style == model::NameStyle::kHuggingFace &&
      saved.config.run.model().zoo().pooling() == ZooConfig::MEAN) {
    throw ConfigError("--names",
                      "the classifiers of Hugging Face read the class token, but this "
                      "network has model.zoo.pooling: MEAN; use --names trireme");
  }
  std::vector<train::SafetensorsEntry> entries;
  size_t bytes = 0;
  for (const auto& [ours, weight] : saved.weights) {
    const std::optional<std::string> name = model::name_in(style, network, ours);
    if (!name) {
      throw ConfigError("--names", fmt::format("{} has no names there that Trireme writes (not for "
                                               "'{}'); use --names trireme",
                                               network, ours));
    }
    add_entries(style, ours, *name, weight.shape, entries);
    bytes += weight.values.size() * sizeof(float);
  }
  std::string text =
      train::safetensors_header(entries, {input.metadata.begin(), input.metadata.end()});
  text.reserve(text.size() + bytes);
  for (const auto& [ours, weight] : saved.weights) {
    text.append(reinterpret_cast<const char*>(weight.values.data()),
                weight.values.size() * sizeof(float));
  }
  return text;
}

// Rejects options that cannot be combined, as far as that can be checked without the run.
void check(const ExportOptions& options) {
  const bool onnx = is_onnx(options);
  if (!onnx && fs::path(options.out).extension() != ".safetensors") {
    throw ConfigError(options.out, "export writes *.onnx or *.safetensors files");
  }
  if (onnx && options.names != model::NameStyle::kTrireme) {
    throw ConfigError("--names", "is for *.safetensors; ONNX files use the names of the layers");
  }
  const bool unit = options.range == InputRange::kUnit;
  if (!onnx && (options.softmax || options.no_normalize || unit)) {
    throw ConfigError(options.out, "--softmax, --no-normalize and --input-range are for *.onnx");
  }
  if (unit && options.no_normalize) {
    throw ConfigError("--input-range", "cannot be combined with --no-normalize");
  }
}

// Prints the input that the exported file expects.
void print_input(const Saved& saved, const InputDescription& input) {
  const TensorSpec& spec = saved.samples.spec.input;
  print_message("input: {} [N, {}: {}\n", spec.dtype == DType::kI32 ? "i64" : "f32",
                spec.shape.to_string().substr(1), input.text);
  if (!input.transforms.empty()) print_message("       of images after {}\n", input.transforms);
}

// Prints the order of the outputs. A model that the network started from may have had another.
void print_outputs(const Saved& saved) {
  constexpr size_t kMaxNames = 20;
  const std::vector<std::string>& names = saved.samples.class_names;
  if (names.empty()) return;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMaxNames); ++i) {
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", i, names[i]);
  }
  if (names.size() > kMaxNames) text += fmt::format(" and {} more", names.size() - kMaxNames);
  print_message("outputs: {}; id2label of a config.json must have this order\n", text);
}

int run(const ExportOptions& options) {
  check(options);
  const bool onnx = is_onnx(options);
  const Saved saved = load(options);
  if (options.range == InputRange::kUnit && !are_pixels(saved.samples.spec)) {
    throw ConfigError("--input-range", fmt::format("is for pixels; the input of this network is {}",
                                                   saved.samples.spec.input.to_string()));
  }
  if (options.softmax && saved.samples.spec.classes == 0) {
    throw ConfigError("--softmax", "is for classifiers; this network is a regression");
  }
  const bool normalized = !onnx || options.no_normalize;
  const InputDescription input =
      describe(saved, normalized ? InputRange::kNormalized : options.range);
  const std::string text =
      onnx ? to_onnx(saved, options, input) : to_safetensors(saved, options.names, input);
  replace_durably(options.out, text);
  print_message("{}: {} after step {}, {}\n", options.out, train::model_name(saved.config.run),
                saved.state.step, format_bytes(static_cast<double>(text.size())));
  print_input(saved, input);
  if (options.names == model::NameStyle::kHuggingFace) print_outputs(saved);
  return 0;
}

}  // namespace

void add_export(ArgumentParser app, Command& chosen) {
  auto options = std::make_shared<ExportOptions>();
  ArgumentParser command =
      app.add_command("export", "Write a trained network as ONNX or safetensors");
  options->add_path(command);
  command.add_option("OUT", options->out, "The file to write: *.onnx or *.safetensors").required();
  options->add_best(command);
  command.add_choice("--input-range", options->range,
                     {{"0..255", InputRange::kStored}, {"0..1", InputRange::kUnit}},
                     "Range of the pixels that the ONNX model expects (default: 0..255)");
  command.add_flag("--no-normalize", options->no_normalize,
                   "Write an ONNX model that expects normalized input (default: the model "
                   "normalizes its input itself)");
  command.add_deprecated_flag("--no-normalise", "--no-normalize", options->no_normalize);
  command.add_flag("--softmax", options->softmax,
                   "Write an ONNX model whose outputs are probabilities (default: logits)");
  command.add_choice("--names", options->names,
                     {{"trireme", model::NameStyle::kTrireme},
                      {"torchvision", model::NameStyle::kTorchvision},
                      {"huggingface", model::NameStyle::kHuggingFace}},
                     "Names of the tensors in a safetensors file (default: trireme)");
  command.epilog(R"(Examples:
  trireme export runs/digits digits.onnx --best
  trireme export runs/cifar10 cifar10.onnx --input-range 0..1 --softmax
  trireme export runs/resnet18 resnet18.safetensors --names torchvision

The input that the file expects is printed and stored in its metadata: range,
layout, order of channels, normalization, resizing and cropping, columns of a
table, names of classes. docs/files.md lists the keys.
)");
  command.on_chosen(
      [options, &chosen] { chosen.run = on_one_rank([options] { return run(*options); }); });
}

}  // namespace trireme::cli
