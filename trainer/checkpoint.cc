#include "trainer/checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "trainer/file.h"
#include "trainer/safetensors.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kState = "state.json";
constexpr const char* kManifest = "manifest.json";
constexpr const char* kLatest = "latest";
constexpr const char* kPrefix = "step-";
constexpr const char* kTemporary = ".saving-";
constexpr const char* kReplaced = ".replaced-";
constexpr const char* kSetAside = "set-aside-";
constexpr int kFormat = 1;

// Sizes a buffer for the largest tensor, so that tensors pass through one by one.
std::vector<float> staging(const Parameters& parameters) {
  int64_t largest = 0;
  for (const Parameter& parameter : parameters.trained) {
    largest = std::max(largest, parameter.spec.shape.elements());
  }
  for (const RunningValue& value : parameters.running) {
    largest = std::max(largest, value.spec.shape.elements());
  }
  return std::vector<float>(static_cast<size_t>(largest));
}

std::span<float> front(std::vector<float>& buffer, const Shape& shape) {
  return std::span(buffer).first(static_cast<size_t>(shape.elements()));
}

FileDigest write_model(const fs::path& path, const TrainedArrays& arrays) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (const Parameter& p : arrays.parameters.trained) entries.push_back({p.name, p.spec.shape});
  for (const RunningValue& v : arrays.parameters.running) entries.push_back({v.name, v.spec.shape});
  SafetensorsWriter writer(path, entries);
  std::vector<float> buffer = staging(arrays.parameters);
  for (const Parameter& parameter : arrays.parameters.trained) {
    to_canonical(parameter, arrays.backend, arrays.values, buffer.data());
    writer.write(front(buffer, parameter.spec.shape));
  }
  for (const RunningValue& value : arrays.parameters.running) {
    to_canonical(value, arrays.backend, arrays.running, buffer.data());
    writer.write(front(buffer, value.spec.shape));
  }
  return writer.finish();
}

FileDigest write_optimizer(const fs::path& path, const TrainedArrays& arrays) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (const auto& array : arrays.optimizer) {
    for (const Parameter& p : arrays.parameters.trained) {
      entries.push_back({array.name + "." + p.name, p.spec.shape});
    }
  }
  SafetensorsWriter writer(path, entries);
  std::vector<float> buffer = staging(arrays.parameters);
  for (const auto& array : arrays.optimizer) {
    for (const Parameter& parameter : arrays.parameters.trained) {
      to_canonical(parameter, arrays.backend, array.values, buffer.data());
      writer.write(front(buffer, parameter.spec.shape));
    }
  }
  return writer.finish();
}

json manifest_entry(const FileDigest& digest) {
  return {{"bytes", digest.bytes}, {"xxh3_64", fmt::format("{:016x}", digest.hash)}};
}

void rename_or_fail(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    throw Error(fmt::format("{}: cannot be renamed to {}: {}", from.string(), to.string(),
                            std::strerror(errno)));
  }
}

bool is_checkpoint_name(const std::string& name) {
  const size_t prefix = std::strlen(kPrefix);
  return name.size() > prefix && name.starts_with(kPrefix) &&
         name.find_first_not_of("0123456789", prefix) == std::string::npos;
}

uint64_t step_of(const std::string& checkpoint_name) {
  return std::stoull(checkpoint_name.substr(std::strlen(kPrefix)));
}

// Why the tensor names or shapes do not fit, as a matter of configuration rather than damage.
template <class F>
void fitting(const FoundCheckpoint& checkpoint, F&& load) {
  try {
    load();
  } catch (const DataError& error) {
    throw ConfigError(
        checkpoint.path.string(),
        fmt::format("is of another model or optimizer than configured ({})", error.what()));
  }
}

}  // namespace

std::string to_json(const CheckpointState& state) {
  json out = {{"format", kFormat},
              {"step", state.step},
              {"epoch", state.epoch},
              {"position", state.position},
              {"seed", state.seed},
              {"config_hash", state.config_hash},
              {"ranks", state.ranks},
              {"epoch_loss_sum", state.epoch_loss_sum},
              {"epoch_samples", state.epoch_samples}};
  if (state.best_accuracy) {
    out["best_accuracy"] = *state.best_accuracy;
    out["best_step"] = state.best_step;
  }
  if (state.loss_scale) {
    out["loss_scale"] = {{"scale", state.loss_scale->scale},
                         {"good_steps", state.loss_scale->good_steps},
                         {"skipped", state.loss_scale->skipped}};
  }
  return out.dump(2) + "\n";
}

CheckpointState state_from_json(const std::string& text, const std::string& file) try {
  const json in = json::parse(text);
  CheckpointState state;
  in.at("step").get_to(state.step);
  in.at("epoch").get_to(state.epoch);
  in.at("position").get_to(state.position);
  in.at("seed").get_to(state.seed);
  in.at("config_hash").get_to(state.config_hash);
  in.at("ranks").get_to(state.ranks);
  in.at("epoch_loss_sum").get_to(state.epoch_loss_sum);
  in.at("epoch_samples").get_to(state.epoch_samples);
  if (in.contains("best_accuracy")) {
    state.best_accuracy = in.at("best_accuracy").get<double>();
    in.at("best_step").get_to(state.best_step);
  }
  if (in.contains("loss_scale")) {
    LossScale& scale = state.loss_scale.emplace();
    in.at("loss_scale").at("scale").get_to(scale.scale);
    in.at("loss_scale").at("good_steps").get_to(scale.good_steps);
    in.at("loss_scale").at("skipped").get_to(scale.skipped);
  }
  return state;
} catch (const json::exception& error) {
  throw DataError(file, fmt::format("is damaged: {}", error.what()));
}

Checkpoints::Checkpoints(fs::path folder, int64_t keep) : folder_(std::move(folder)), keep_(keep) {}

void Checkpoints::clean() const {
  std::error_code ignored;  // what cannot be removed now is tried again at the next start
  if (!fs::is_directory(folder_, ignored)) return;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kTemporary) || name.starts_with(kReplaced)) {
      fs::remove_all(entry.path(), ignored);
    }
  }
}

std::vector<fs::path> Checkpoints::list() const {
  std::vector<std::pair<uint64_t, fs::path>> found;
  std::error_code none;
  for (fs::directory_iterator entry(folder_, none), end; !none && entry != end; ++entry) {
    const std::string name = entry->path().filename().string();
    if (is_checkpoint_name(name)) found.emplace_back(step_of(name), entry->path());
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<fs::path> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

void Checkpoints::set_aside_after(int64_t step) const {
  for (const fs::path& path : list()) {
    const std::string name = path.filename().string();
    if (step_of(name) <= static_cast<uint64_t>(step)) continue;
    fs::remove_all(folder_ / (kSetAside + name));
    rename_or_fail(path, folder_ / (kSetAside + name));
  }
}

fs::path Checkpoints::save(const CheckpointState& state, const TrainedArrays& arrays) const {
  const std::string name = fmt::format("{}{:08}", kPrefix, state.step);
  const fs::path target = folder_ / name;
  const fs::path temporary = folder_ / (kTemporary + name);
  try {
    fs::create_directories(folder_);
    fs::remove_all(temporary);
    fs::create_directory(temporary);
    json files;
    files[kModel] = manifest_entry(write_model(temporary / kModel, arrays));
    files[kOptimizer] = manifest_entry(write_optimizer(temporary / kOptimizer, arrays));
    files[kState] = manifest_entry(write_durably(temporary / kState, to_json(state)));
    write_durably(temporary / kManifest,
                  json{{"format", kFormat}, {"files", files}}.dump(2) + "\n");
    sync_folder(temporary);
    if (fs::exists(target)) {  // an older one of the same step, which was passed over as damaged
      fs::remove_all(folder_ / (kReplaced + name));
      rename_or_fail(target, folder_ / (kReplaced + name));
    }
    rename_or_fail(temporary, target);
    sync_folder(folder_);
    replace_durably(folder_ / kLatest, name + "\n");
  } catch (const fs::filesystem_error& error) {
    throw Error(fmt::format("checkpoint {} cannot be saved: {}", target.string(), error.what()));
  }
  remove_old();
  return target;
}

void Checkpoints::remove_old() const {
  const std::vector<fs::path> all = list();
  std::error_code ignored;  // one too many does no harm
  for (size_t i = static_cast<size_t>(keep_); i < all.size(); ++i) {
    // Renamed first, so that a kill within the removal leaves no half checkpoint under a good name.
    const fs::path doomed = folder_ / (kReplaced + all[i].filename().string());
    fs::rename(all[i], doomed, ignored);
    fs::remove_all(doomed, ignored);
  }
  clean();
}

FoundCheckpoint open_checkpoint(const fs::path& path) {
  const fs::path manifest_path = path / kManifest;
  try {
    const json manifest = json::parse(read_text(manifest_path));
    if (manifest.at("format") != kFormat) {
      throw DataError(manifest_path.string(), "is of another format than this program knows");
    }
    for (const char* name : {kModel, kOptimizer, kState}) {
      const json& entry = manifest.at("files").at(name);
      const FileDigest digest = digest_of(path / name);
      const auto bytes = entry.at("bytes").get<uint64_t>();
      if (digest.bytes != bytes) {
        throw DataError((path / name).string(),
                        fmt::format("has {} bytes, should have {}", digest.bytes, bytes));
      }
      const std::string hash = fmt::format("{:016x}", digest.hash);
      if (hash != entry.at("xxh3_64")) {
        throw DataError((path / name).string(),
                        fmt::format("is damaged: checksum {}, should be {}", hash,
                                    entry.at("xxh3_64").get<std::string>()));
      }
    }
    return {path, state_from_json(read_text(path / kState), (path / kState).string())};
  } catch (const json::exception& error) {
    throw DataError(manifest_path.string(), fmt::format("is damaged: {}", error.what()));
  }
}

std::optional<FoundCheckpoint> newest_checkpoint(const fs::path& folder, const Warn& warn) {
  const std::vector<fs::path> all = Checkpoints(folder, 1).list();
  std::string last;
  for (const fs::path& path : all) {
    try {
      return open_checkpoint(path);
    } catch (const DataError& error) {
      last = error.what();
      warn(fmt::format("checkpoint {} passed over: {}", path.filename().string(), last));
    }
  }
  if (!all.empty()) {
    throw DataError(
        folder.string(),
        fmt::format("all of its {} checkpoints are damaged; the oldest: {}", all.size(), last));
  }
  return std::nullopt;
}

FoundCheckpoint find_checkpoint(const fs::path& path, const Warn& warn) {
  std::error_code none;
  if (!fs::is_directory(path, none)) throw DataError(path.string(), "no such folder");
  const fs::path absolute = fs::absolute(path).lexically_normal();
  const fs::path name =
      absolute.has_filename() ? absolute.filename() : absolute.parent_path().filename();
  if (fs::exists(path / kManifest, none) || is_checkpoint_name(name.string())) {
    return open_checkpoint(path);
  }
  const fs::path folder =
      fs::is_directory(path / "checkpoints", none) ? path / "checkpoints" : path;
  if (auto found = newest_checkpoint(folder, warn)) return *found;
  throw DataError(path.string(), "holds no checkpoint");
}

void load_model(const FoundCheckpoint& checkpoint, const TrainedArrays& arrays) {
  fitting(checkpoint, [&] {
    const SafetensorsReader reader(checkpoint.path / kModel);
    std::vector<float> buffer = staging(arrays.parameters);
    for (const Parameter& parameter : arrays.parameters.trained) {
      reader.read(parameter.name, parameter.spec.shape, front(buffer, parameter.spec.shape));
      from_canonical(parameter, arrays.backend, buffer.data(), arrays.values);
    }
    for (const RunningValue& value : arrays.parameters.running) {
      reader.read(value.name, value.spec.shape, front(buffer, value.spec.shape));
      from_canonical(value, arrays.backend, buffer.data(), arrays.running);
    }
    const size_t wanted = arrays.parameters.trained.size() + arrays.parameters.running.size();
    if (reader.names().size() != wanted) {
      throw DataError((checkpoint.path / kModel).string(),
                      fmt::format("holds {} tensors, wanted {}", reader.names().size(), wanted));
    }
  });
}

void load_optimizer(const FoundCheckpoint& checkpoint, const TrainedArrays& arrays) {
  fitting(checkpoint, [&] {
    const SafetensorsReader reader(checkpoint.path / kOptimizer);
    std::vector<float> buffer = staging(arrays.parameters);
    for (const auto& array : arrays.optimizer) {
      for (const Parameter& parameter : arrays.parameters.trained) {
        reader.read(array.name + "." + parameter.name, parameter.spec.shape,
                    front(buffer, parameter.spec.shape));
        from_canonical(parameter, arrays.backend, buffer.data(), array.values);
      }
    }
  });
}

}  // namespace trireme
