#include "trainer/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "trainer/base/json.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kState = "state.json";
constexpr const char* kManifest = "manifest.json";
constexpr const char* kLatest = "latest";
constexpr const char* kBest = "best";
constexpr const char* kStepPrefix = "step-";
constexpr const char* kTemporary = ".saving-";
constexpr const char* kReplaced = ".replaced-";
constexpr const char* kRemoved = ".removed-";
constexpr const char* kSetAside = "set-aside-";
constexpr int kManifestFormat = 1;
constexpr std::array kFiles = {kModelFile, kOptimizerFile, kState, kManifest};

Json manifest_entry(const FileDigest& digest) {
  return {{"bytes", digest.bytes}, {"xxh3_64", fmt::format("{:016x}", digest.hash)}};
}

bool is_checkpoint_name(const std::string& name) {
  const size_t prefix = std::strlen(kStepPrefix);
  return name.size() > prefix && name.size() <= prefix + 18 && name.starts_with(kStepPrefix) &&
         name.find_first_not_of("0123456789", prefix) == std::string::npos;
}

// Returns the checkpoint named in the file `best` or `latest`; nothing if it is not such a file.
std::optional<fs::path> named_by(const fs::path& pointer) {
  std::error_code none;
  if (!fs::is_regular_file(pointer, none)) return std::nullopt;
  std::string name = read_text(pointer);
  if (name.ends_with('\n')) name.pop_back();
  if (!is_checkpoint_name(name)) return std::nullopt;
  return pointer.parent_path() / name;
}

std::string name_of(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

uint64_t step_of(const std::string& checkpoint_name) {
  return std::stoull(checkpoint_name.substr(std::strlen(kStepPrefix)));
}

// Checks the step in the folder's name, which determines the order of checkpoints.
void require_step_of(const fs::path& path, const CheckpointState& state) {
  const std::string name = fs::absolute(path / ".").lexically_normal().parent_path().filename();
  if (!is_checkpoint_name(name) || step_of(name) == static_cast<uint64_t>(state.step)) return;
  throw DataError(
      (path / kState).string(),
      fmt::format("is damaged: step is {}, but the folder is named {}", state.step, name));
}

}  // namespace

Checkpoints::Checkpoints(fs::path folder, int64_t keep) : folder_(std::move(folder)), keep_(keep) {}

void Checkpoints::clean() const {
  std::error_code ignored;  // the next start tries again
  std::vector<std::string> names;
  std::error_code none;
  for (fs::directory_iterator entry(folder_, none), end; !none && entry != end;
       entry.increment(none)) {
    names.push_back(entry->path().filename().string());
  }
  for (const std::string& name : names) {
    if (name.ends_with(kTemporarySuffix)) remove_folder(open_own_folder(folder_), name, kFiles);
    for (const std::string prefix : {kTemporary, kReplaced, kRemoved}) {
      if (!name.starts_with(prefix)) continue;
      const std::string checkpoint = name.substr(prefix.size());
      if (!is_checkpoint_name(checkpoint)) continue;
      if (prefix == kReplaced && !fs::exists(folder_ / checkpoint, ignored)) {
        // The process was killed between two renames, and this is the only checkpoint of its step.
        fs::rename(folder_ / name, folder_ / checkpoint, ignored);
      } else {
        discard(name);
      }
    }
  }
}

void Checkpoints::discard(const std::string& name) const {
  if (!remove_folder(open_own_folder(folder_), name, kFiles)) set_aside(name);
}

std::optional<fs::path> Checkpoints::best() const {
  const auto path = named_by(folder_ / kBest);
  std::error_code none;
  return path && fs::is_directory(*path, none) ? path : std::nullopt;
}

std::vector<fs::path> Checkpoints::list() const {
  std::vector<std::pair<uint64_t, fs::path>> found;
  std::error_code none;
  for (fs::directory_iterator entry(folder_, none), end; !none && entry != end;
       entry.increment(none)) {
    const std::string name = entry->path().filename().string();
    if (is_checkpoint_name(name)) found.emplace_back(step_of(name), entry->path());
  }
  // An unreadable folder must not be taken for an empty one.
  if (none && none != std::errc::no_such_file_or_directory) {
    throw DataError(folder_.string(), "cannot be read: " + none.message());
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<fs::path> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

fs::path Checkpoints::continue_from(const fs::path& checkpoint, int64_t step,
                                    const Warn& warn) const {
  const fs::path from = fs::canonical(checkpoint);
  const fs::path own = folder_ / name_of(step);
  const bool renamed = from.filename() != own.filename();
  for (const fs::path& path : list()) {
    const uint64_t other = step_of(path.filename().string());
    const auto resumed = static_cast<uint64_t>(step);
    std::error_code none;  // a link that leads nowhere is no checkpoint
    if (other < resumed || fs::canonical(path, none) == from || (other == resumed && !renamed))
      continue;
    const fs::path aside = set_aside(path.filename().string());
    warn(fmt::format("{} does not belong to the run that resumes from step {}: renamed to {}",
                     path.string(), step, aside.filename().string()));
  }
  if (renamed) rename_file(from, own);
  const std::string problem = update_pointer(kLatest, name_of(step));
  if (!problem.empty()) warn(problem);
  return own;
}

void Checkpoints::remove_pointers() const {
  std::error_code ignored;  // they are replaced by the next save
  for (const char* pointer : {kLatest, kBest}) fs::remove(folder_ / pointer, ignored);
}

fs::path Checkpoints::set_aside(const std::string& name) const {
  const std::string aside = kSetAside + name.substr(name.rfind(kStepPrefix));
  fs::path to = folder_ / aside;
  for (int copy = 2; fs::exists(to); ++copy) to = folder_ / fmt::format("{}-{}", aside, copy);
  rename_file(folder_ / name, to);
  return to;
}

SavedCheckpoint Checkpoints::save(const CheckpointState& state, const Snapshot& snapshot,
                                  std::stop_token stop) const {
  const std::string name = name_of(state.step);
  create_folders(folder_);
  static_cast<void>(open_own_folder(folder_));
  const fs::path temporary = folder_ / (kTemporary + name);
  try {
    discard(temporary.filename());
    fs::create_directory(temporary);
    write_files(temporary, state, snapshot, stop);
    if (stop.stop_requested())
      throw Error(temporary.string() + ": abandoned before it was renamed");
    publish(temporary, name);
  } catch (const fs::filesystem_error& error) {
    discard(temporary.filename());
    throw Error(fmt::format("{}: {}", error.path1().string(), error.code().message()));
  } catch (const Error&) {
    discard(temporary.filename());
    throw;
  }
  SavedCheckpoint saved{folder_ / name};
  std::vector<std::string> retained = {name};
  if (state.best) {
    retained.push_back(name_of(state.best->step));
    if (std::error_code none; fs::exists(folder_ / retained.back(), none)) {
      saved.problem = update_pointer(kBest, retained.back());
    }
  }
  const std::string problem = update_pointer(kLatest, name);
  saved.problem += (saved.problem.empty() || problem.empty() ? "" : "; ") + problem;
  remove_old(retained);
  return saved;
}

void Checkpoints::write_files(const fs::path& to, const CheckpointState& state,
                              const Snapshot& snapshot, const std::stop_token& stop) const {
  DurableFile model(to / kModelFile, stop);
  model.write(snapshot.model());
  DurableFile optimizer(to / kOptimizerFile, stop);
  optimizer.write(snapshot.optimizer());
  DurableFile position(to / kState);
  position.write(to_json(state));
  const Json files = {{kModelFile, manifest_entry(model.digest())},
                      {kOptimizerFile, manifest_entry(optimizer.digest())},
                      {kState, manifest_entry(position.digest())}};
  DurableFile manifest(to / kManifest);
  manifest.write(Json{{"format", kManifestFormat}, {"files", files}}.dump(2) + "\n");
  // Synced together at the end: metadata that the file system writes for one of them need not be
  // written again for the others.
  for (DurableFile* file : {&model, &optimizer, &position, &manifest}) file->finish();
  sync_folder(to);
}

void Checkpoints::publish(const fs::path& temporary, const std::string& name) const {
  const fs::path target = folder_ / name;
  if (fs::exists(target)) {  // saved before the evaluation that made it the best
    discard(kReplaced + name);
    rename_file(target, folder_ / (kReplaced + name));
  }
  rename_file(temporary, target);
  sync_folder(folder_);
}

std::string Checkpoints::update_pointer(const char* pointer, const std::string& name) const {
  try {
    if (named_by(folder_ / pointer) != folder_ / name) {
      replace_durably(folder_ / pointer, name + "\n");
    }
    return {};
  } catch (const Error& error) {
    return fmt::format("'{}' cannot be written: {}", pointer, error.what());
  }
}

void Checkpoints::remove_old(const std::vector<std::string>& exceptions) const {
  std::vector<fs::path> all;
  std::optional<fs::path> best_path;
  try {
    all = list();
    best_path = best();
  } catch (const DataError&) {
    return;  // the best checkpoint is unknown
  }
  std::error_code ignored;  // an extra checkpoint does no harm
  for (size_t i = static_cast<size_t>(keep_); i < all.size(); ++i) {
    const std::string name = all[i].filename().string();
    if (all[i] == best_path || std::ranges::find(exceptions, name) != exceptions.end()) continue;
    // Renamed first, so that an interrupted removal leaves no incomplete checkpoint with a valid
    // name.
    fs::rename(all[i], folder_ / (kRemoved + name), ignored);
    discard(kRemoved + name);
  }
  clean();
}

FoundCheckpoint open_checkpoint(const fs::path& path) {
  const fs::path manifest_path = path / kManifest;
  try {
    const Json manifest = parse_json(read_text(manifest_path));
    if (manifest.at("format") != kManifestFormat) {
      throw DataError(manifest_path.string(), "has a format that this version does not support");
    }
    for (const char* name : {kModelFile, kOptimizerFile, kState}) {
      const Json& entry = manifest.at("files").at(name);
      const auto bytes = integer_from<uint64_t>(entry.at("bytes"));
      std::error_code none;  // if there is no such file, reading it fails
      const uintmax_t size = fs::file_size(path / name, none);
      if (!none && size != bytes) {
        throw DataError((path / name).string(),
                        fmt::format("has {} bytes instead of {}", size, bytes));
      }
      const FileDigest digest = digest_of(path / name);
      const std::string hash = fmt::format("{:016x}", digest.hash);
      const auto wanted = entry.at("xxh3_64").get<std::string>();
      if (hash != wanted) {
        throw DataError((path / name).string(),
                        fmt::format("is damaged: checksum {}, should be {}", hash, wanted));
      }
    }
    FoundCheckpoint found{path,
                          state_from_json(read_text(path / kState), (path / kState).string())};
    require_step_of(path, found.state);
    return found;
  } catch (const DataError&) {
    throw;
  } catch (const ConfigError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {  // invalid JSON
    throw DataError(manifest_path.string(), fmt::format("is damaged: {}", json_problem(error)));
  }
}

std::optional<FoundCheckpoint> newest_checkpoint(const fs::path& folder, const Warn& warn) {
  const std::vector<fs::path> all = Checkpoints(folder, 1).list();
  const auto latest = named_by(folder / kLatest);
  std::error_code none;
  if (latest && !fs::exists(*latest, none)) {
    const std::string problem =
        fmt::format("names {}, which is missing", latest->filename().string());
    if (all.empty()) {
      throw DataError((folder / kLatest).string(),
                      problem + "; restore it or, to start anew, remove this file");
    }
    warn(fmt::format("{} {}; the newest is {}", (folder / kLatest).string(), problem,
                     all.front().filename().string()));
  }
  std::string last;
  for (const fs::path& path : all) {
    try {
      return open_checkpoint(path);
    } catch (const DataError& error) {
      last = error.what();
      warn(fmt::format("checkpoint {} skipped: {}", path.filename().string(), last));
    }
  }
  if (!all.empty()) {
    throw DataError(
        folder.string(),
        fmt::format("none of its {} checkpoints can be read; the oldest: {}", all.size(), last));
  }
  return std::nullopt;
}

void warn_on_stderr(const std::string& text) {
  fmt::print(stderr, "warning: {}\n", printable_message(text));
}

namespace {

// Opens the checkpoint that the path names. For a run or a folder of checkpoints, returns the
// result of `choose` for the folder.
template <class Choose>
FoundCheckpoint open_or_choose(const fs::path& path, const Choose& choose) {
  if (const auto named = named_by(path)) return open_checkpoint(*named);
  std::error_code none;
  if (!fs::exists(path, none)) throw DataError(path.string(), "no such folder");
  if (!fs::is_directory(path, none)) {
    throw DataError(path.string(), "is not a checkpoint: name a run's folder or a step-N in it");
  }
  const fs::path absolute = fs::absolute(path).lexically_normal();
  const fs::path name =
      absolute.has_filename() ? absolute.filename() : absolute.parent_path().filename();
  if (fs::exists(path / kManifest, none) || is_checkpoint_name(name.string())) {
    return open_checkpoint(path);
  }
  const fs::path folder =
      fs::is_directory(path / "checkpoints", none) ? path / "checkpoints" : path;
  if (std::optional<FoundCheckpoint> found = choose(folder)) return *found;
  throw DataError(path.string(), "has no checkpoint");
}

}  // namespace

FoundCheckpoint find_checkpoint(const fs::path& path, const Warn& warn) {
  return open_or_choose(path,
                        [&](const fs::path& folder) { return newest_checkpoint(folder, warn); });
}

FoundCheckpoint find_for_inference(const fs::path& path, const Warn& warn) {
  return open_or_choose(path, [&](const fs::path& folder) {
    std::optional<FoundCheckpoint> newest = newest_checkpoint(folder, warn);
    if (!newest || !newest->state.stopping) return newest;
    if (const auto best = Checkpoints(folder, 1).best()) newest = open_checkpoint(*best);
    return newest;
  });
}

}  // namespace trireme::train
