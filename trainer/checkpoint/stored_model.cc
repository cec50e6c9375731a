#include "trainer/checkpoint/stored_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "model/names.h"
#include "model/onnx/onnx.h"
#include "trainer/base/json.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/run_folder.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInitFrom = "model.init_from";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr std::string_view kIndexEnd = ".safetensors.index.json";

model::Weights all_tensors(const SafetensorsReader& reader) {
  model::Weights weights;
  for (const std::string& name : reader.names()) {
    if (model::is_bookkeeping(name)) continue;
    weights[name] = {reader.shape(name), reader.read(name)};
  }
  return weights;
}

// Returns the shard of each tensor.
std::map<std::string, std::string> read_index(const fs::path& index) {
  try {
    return parse_json(read_text(index)).at("weight_map").get<std::map<std::string, std::string>>();
  } catch (const nlohmann::json::exception& error) {
    throw DataError(index.string(), fmt::format("is damaged: {}", json_problem(error)));
  }
}

// Reads the tensors of all files that the index names. Throws DataError unless each tensor is in
// the file that the index states, and in no other.
model::Weights read_shards(const fs::path& index) {
  const std::map<std::string, std::string> file_of = read_index(index);
  std::map<std::string, std::vector<std::string>> tensors_of;
  for (const auto& [tensor, file] : file_of) tensors_of[file].push_back(tensor);
  model::Weights weights;
  for (const auto& [file, stated] : tensors_of) {
    if (file.empty() || file == "." || file == ".." || fs::path(file).filename() != file) {
      throw DataError(index.string(),
                      fmt::format("names '{}', which is not a file in its folder", file));
    }
    const SafetensorsReader reader(index.parent_path() / file);
    for (const std::string& tensor : stated) {
      if (reader.has(tensor)) continue;
      throw DataError(index.string(), fmt::format("states that tensor '{}' is in {}, which has no "
                                                  "such tensor",
                                                  tensor, file));
    }
    model::Weights read = all_tensors(reader);
    for (const auto& [tensor, weight] : read) {
      const auto found = file_of.find(tensor);
      if (found != file_of.end() && found->second == file) continue;
      const std::string where = found == file_of.end()
                                    ? "is not listed in "
                                    : "is in " + found->second + " according to ";
      throw DataError(
          (index.parent_path() / file).string(),
          fmt::format("has tensor '{}', which {}{}", tensor, where, index.filename().string()));
    }
    weights.merge(read);
  }
  return weights;
}

// Returns the text as one word of a shell.
std::string shell_word(std::string_view text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

[[noreturn]] void throw_pickle_error(const fs::path& path) {
  fs::path converted = path;
  converted.replace_extension(".safetensors");
  throw ConfigError(
      kInitFrom,
      fmt::format(
          "{} is a pickle file, which can run code when it is loaded; convert it: python -c "
          "\"import sys, torch; from safetensors.torch import save_file; save_file(torch.load("
          "sys.argv[1], map_location='cpu', weights_only=True), sys.argv[2])\" {} {}",
          path.string(), shell_word(path.string()), shell_word(converted.string())));
}

bool is_pickle(const std::string& extension) {
  constexpr const char* kPickles[] = {".bin", ".pth", ".pt", ".ckpt", ".pkl", ".pickle"};
  return std::ranges::find(kPickles, extension) != std::end(kPickles);
}

// The files of a path of model.init_from.
struct Located {
  fs::path file;  // *.safetensors, *.safetensors.index.json or *.onnx
  std::optional<FoundCheckpoint> checkpoint = {};  // that the file belongs to
};

Located locate(const fs::path& path) {
  const std::string name = path.filename().string();
  std::error_code none;
  if (!fs::exists(path, none)) {
    throw ConfigError(kInitFrom, path.string() + ": no such file or folder");
  }
  if (is_pickle(path.extension().string())) throw_pickle_error(path);
  if (path.extension() == ".safetensors" || path.extension() == ".onnx" ||
      name.ends_with(kIndexEnd)) {
    return {path};
  }
  const bool folder = fs::is_directory(path, none);
  // A checkpoint whose manifest is missing is incomplete, and its averages are in another file.
  const bool plain_folder = folder && !has_checkpoint_file(path);
  if (plain_folder && fs::exists(path / kIndexFile)) return {path / kIndexFile};
  if (plain_folder && fs::exists(path / kModelFile)) return {path / kModelFile};
  if (folder || name == "best" || name == "latest") {
    const FoundCheckpoint checkpoint = find_for_inference(path, warn_on_stderr);
    return {checkpoint.path / kModelFile, checkpoint};
  }
  throw ConfigError(kInitFrom, fmt::format("{} is not a *.safetensors, *.safetensors.index.json or "
                                           "*.onnx file, a checkpoint or a run",
                                           path.string()));
}

model::Weights read_weights(const Located& located) {
  if (located.file.extension() == ".onnx") return model::read_onnx(located.file).weights;
  if (located.file.string().ends_with(kIndexEnd)) return read_shards(located.file);
  return located.checkpoint ? train::read_weights(*located.checkpoint)
                            : all_tensors(SafetensorsReader(located.file));
}

// Sets what samples.json of the run says to which a checkpoint belongs. The checkpoint may have
// been copied elsewhere.
void read_samples(const fs::path& checkpoint, StoredModel& stored) {
  const RunFolder run{fs::absolute(checkpoint).lexically_normal().parent_path().parent_path()};
  if (!fs::exists(run.samples())) return;
  try {
    const auto json = parse_json(read_text(run.samples()));
    stored.class_names = json.at("class_names").get<std::vector<std::string>>();
    if (json.contains("tokenizer")) {
      stored.tokenizer = json["tokenizer"].at("identity").get<std::string>();
    }
  } catch (const nlohmann::json::exception& error) {
    throw DataError(run.samples().string(),
                    fmt::format("not a description of samples: {}", json_problem(error)));
  }
}

// Returns the names of the classes that `trireme export` has written into the metadata of a file.
std::vector<std::string> class_names_in(const std::map<std::string, std::string>& metadata) {
  const auto classes = metadata.find("classes");
  if (classes == metadata.end()) return {};
  const auto json = parse_json(classes->second, /*throws=*/false);
  const bool names = json.is_array() &&
                     std::ranges::all_of(json, [](const auto& name) { return name.is_string(); });
  return names ? json.get<std::vector<std::string>>() : std::vector<std::string>();
}

// Returns whether the parameter is a table of positions that are trained.
bool is_position_table(const model::Signature::Parameter& parameter) {
  return parameter.by_position && parameter.init.kind != model::Initializer::Kind::kSinusoidal;
}

// Calls table(name, rows) for each table of positions of the network.
template <class Table>
void for_each_position_table(const model::Graph& graph, Table table) {
  for (const model::Node& node : graph.nodes) {
    for (const auto& parameter : node.signature.parameters) {
      if (is_position_table(parameter)) table(parameter_name(node, parameter), parameter.shape[0]);
    }
  }
}

}  // namespace

model::Weights read_weights(const fs::path& path) { return read_weights(locate(path)); }

model::Weights read_weights(const FoundCheckpoint& checkpoint) {
  model::Weights weights = all_tensors(checkpoint.model());
  use_averages(checkpoint, weights);
  return weights;
}

StoredModel read_stored_model(const fs::path& path) {
  const Located located = locate(path);
  if (located.file.extension() == ".onnx") {
    model::OnnxModel model = model::read_onnx(located.file);
    return {.path = path,
            .weights = std::move(model.weights),
            .class_names = class_names_in(model.metadata)};
  }
  StoredModel stored{.path = path, .weights = read_weights(located)};
  const fs::path folder = located.file.parent_path();
  if (fs::exists(folder / "manifest.json")) {
    read_samples(folder, stored);
  } else if (fs::exists(folder / "config.json")) {
    stored.description.emplace(folder / "config.json");
    stored.class_names = stored.description->class_names();
  } else if (located.file.extension() == ".safetensors") {
    stored.class_names = class_names_in(SafetensorsReader(located.file).metadata());
  }
  return stored;
}

bool has_learned_positions(const model::Graph& graph) {
  bool found = false;
  for_each_position_table(graph, [&](const std::string&, int64_t) { found = true; });
  return found;
}

int64_t stored_positions(const StoredModel& stored, const model::Graph& graph) {
  int64_t rows = 0;
  for_each_position_table(graph, [&](const std::string& wanted, int64_t) {
    for (const auto& [name, weight] : stored.weights) {
      const auto guesses = model::name_guesses(name, "");
      const bool fits =
          std::ranges::find(guesses, wanted, &model::NameGuess::name) != guesses.end();
      if (fits && weight.shape.rank() == 2) rows = std::max(rows, weight.shape[0]);
    }
  });
  return rows;
}

int64_t stored_positions(const fs::path& file, const model::Graph& graph) {
  StoredModel stored;
  const SafetensorsReader reader(file);
  for (const std::string& name : reader.names()) stored.weights[name] = {reader.shape(name), {}};
  return stored_positions(stored, graph);
}

bool keep_positions(Config& config, const model::Graph& graph, int64_t rows) {
  bool shorter = false;
  for_each_position_table(
      graph, [&](const std::string&, int64_t ours) { shorter = shorter || ours < rows; });
  if (!shorter) return false;
  ModelConfig& model = *config.run.mutable_model();
  if (model.has_zoo()) {
    if (model.zoo().has_max_length()) return false;
    model.mutable_zoo()->set_max_length(rows);
    return true;
  }
  bool changed = false;
  for (LayerConfig& layer : *model.mutable_network()->mutable_layer()) {
    if (layer.embedding().positions() != EmbeddingConfig::LEARNED) continue;
    if (layer.embedding().has_max_length()) continue;
    layer.mutable_embedding()->set_max_length(rows);
    changed = true;
  }
  return changed;
}

}  // namespace trireme::train
