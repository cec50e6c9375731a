#include "trainer/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>
#include <utility>

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

uint64_t step_of(const std::string& checkpoint_name) {
  return std::stoull(checkpoint_name.substr(std::strlen(kStepPrefix)));
}

// Returns whether the path leads to the open folder, or to nothing if it is not open.
bool leads_to(const fs::path& path, const Descriptor& folder) {
  std::error_code none;
  return folder.is_open() ? is_file_at(folder.number(), path) : !fs::exists(path, none);
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

std::string checkpoint_name(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

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

std::string Checkpoints::set_best(int64_t step) const {
  return update_pointer(kBest, checkpoint_name(step));
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
  if (none && none != std::errc::no_such_file_or_directory && none != std::errc::not_a_directory) {
    throw DataError(folder_.string(), "cannot be read: " + none.message());
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<fs::path> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

int64_t Checkpoints::newest_step() const {
  const std::vector<fs::path> all = list();
  return all.empty() ? -1 : static_cast<int64_t>(step_of(all.front().filename().string()));
}

fs::path Checkpoints::continue_from(const fs::path& checkpoint, int64_t step,
                                    const Warn& warn) const {
  const fs::path from = fs::canonical(checkpoint);
  const fs::path own = folder_ / checkpoint_name(step);
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
  const std::string problem = update_pointer(kLatest, checkpoint_name(step));
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

void Checkpoints::with_temporary(const std::string& name, const Work& work) const {
  create_folders(folder_);
  static_cast<void>(open_own_folder(folder_));
  const fs::path temporary = folder_ / (kTemporary + name);
  try {
    discard(temporary.filename());
    fs::create_directory(temporary);
    work(temporary);
  } catch (const fs::filesystem_error& error) {
    discard(temporary.filename());
    throw Error(fmt::format("{}: {}", error.path1().string(), error.code().message()));
  } catch (const Error&) {
    discard(temporary.filename());
    throw;
  }
}

fs::path Checkpoints::adopt(const FoundCheckpoint& checkpoint,
                            const std::optional<FoundCheckpoint>& best) const {
  const auto copy = [](const FoundCheckpoint& from, const fs::path& to) {
    const CheckpointFiles& files = *from.files;
    for (const auto& [file, name] :
         {std::pair(&files.model, kModelFile), std::pair(&files.optimizer, kOptimizerFile),
          std::pair(&files.state, kState), std::pair(&files.manifest, kManifest)}) {
      DurableFile written(to / name);
      read_pieces(*file, from.path / name,
                  [&](std::string_view piece) { written.write(std::as_bytes(std::span(piece))); });
      written.finish();
    }
    sync_folder(to);
  };
  const std::string name = checkpoint_name(checkpoint.state.step);
  with_temporary(name, [&](const fs::path& temporary) {
    copy(checkpoint, temporary);
    if (!best) return publish(temporary, name);
    const std::string best_name = checkpoint_name(best->state.step);
    with_temporary(best_name, [&](const fs::path& other) {
      copy(*best, other);
      publish(temporary, name);  // first: a run resumes from the newest that is there
      publish(other, best_name);
    });
  });
  return folder_ / name;
}

SavedCheckpoint Checkpoints::save(const CheckpointState& state, const Snapshot& snapshot,
                                  std::stop_token stop) const {
  const std::string name = checkpoint_name(state.step);
  with_temporary(name, [&](const fs::path& temporary) {
    write_files(temporary, state, snapshot, stop);
    if (stop.stop_requested())
      throw Error(temporary.string() + ": abandoned before it was renamed");
    publish(temporary, name);
  });
  SavedCheckpoint saved{folder_ / name};
  std::vector<std::string> retained = {name};
  if (state.best) {
    retained.push_back(checkpoint_name(state.best->step));
    if (std::error_code none; fs::exists(folder_ / retained.back(), none)) {
      saved.problem = set_best(state.best->step);
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
    best_path = named_by(folder_ / kBest);
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

SafetensorsReader FoundCheckpoint::model() const {
  return {path / kModelFile, std::shared_ptr<const Descriptor>(files, &files->model)};
}

SafetensorsReader FoundCheckpoint::optimizer() const {
  return {path / kOptimizerFile, std::shared_ptr<const Descriptor>(files, &files->optimizer)};
}

namespace {

Json read_manifest(const Descriptor& file, const fs::path& path) {
  Json manifest = parse_json(read_text(file, path));
  const Json& format = manifest.at("format");
  if (format.is_number_integer() && format > kManifestFormat) {
    throw newer_format_error(path.string(), json_text(format), kManifestFormat);
  }
  if (format != kManifestFormat) throw Error("its format is " + json_text(format));
  return manifest;
}

// Throws DataError unless the file has the size and the checksum in the manifest.
void verify(const Descriptor& file, const fs::path& path, const Json& manifest) {
  const Json& entry = manifest.at("files").at(path.filename().string());
  const auto bytes = integer_from<uint64_t>(entry.at("bytes"));
  struct stat status {};
  if (::fstat(file.number(), &status) == 0 && static_cast<uint64_t>(status.st_size) != bytes) {
    throw DataError(path.string(),
                    fmt::format("has {} bytes instead of {}", status.st_size, bytes));
  }
  const std::string hash = fmt::format("{:016x}", digest_of(file, path).hash);
  const auto wanted = entry.at("xxh3_64").get<std::string>();
  if (hash != wanted) {
    throw DataError(path.string(),
                    fmt::format("is damaged: checksum {}, should be {}", hash, wanted));
  }
}

// Opens all files of the folder first, so that they can be read even if they are deleted meanwhile.
FoundCheckpoint open_files(const fs::path& path, const Descriptor& folder) {
  const fs::path manifest_path = path / kManifest;
  try {
    if (!folder.is_open()) {
      throw DataError(manifest_path.string(),
                      std::string("cannot be read: ") + std::strerror(errno));
    }
    Descriptor manifest_file = open_to_read(folder, manifest_path);
    CheckpointFiles files{.model = open_to_read(folder, path / kModelFile),
                          .optimizer = open_to_read(folder, path / kOptimizerFile),
                          .state = open_to_read(folder, path / kState),
                          .manifest = std::move(manifest_file)};
    files.checksum = digest_of(files.manifest, manifest_path).hash;
    const Json manifest = read_manifest(files.manifest, manifest_path);
    verify(files.model, path / kModelFile, manifest);
    verify(files.optimizer, path / kOptimizerFile, manifest);
    verify(files.state, path / kState, manifest);
    CheckpointState state =
        state_from_json(read_text(files.state, path / kState), (path / kState).string());
    require_step_of(path, state);
    return {path, std::move(state), std::make_shared<const CheckpointFiles>(std::move(files))};
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

// How often a checkpoint is looked for again because a run in progress replaces and deletes them.
constexpr int kMaxAttempts = 100;
// The pause if a checkpoint is missing, since it is being replaced.
constexpr auto kReplacing = std::chrono::milliseconds(10);

}  // namespace

FoundCheckpoint open_checkpoint(const fs::path& path) {
  for (int attempt = 1;; ++attempt) {
    const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    try {
      return open_files(path, folder);
    } catch (const DataError&) {
      std::error_code none;
      const bool replacing =
          !folder.is_open() &&
          fs::exists(path.parent_path() / (kReplaced + path.filename().string()), none);
      if ((leads_to(path, folder) && !replacing) || attempt == kMaxAttempts) throw;
      if (replacing) std::this_thread::sleep_for(kReplacing);
    }
  }
}

namespace {

// Returns a text that changes when a run saves a checkpoint in the folder.
std::string contents_of(const fs::path& folder) {
  std::string text;
  std::error_code none;
  for (fs::directory_iterator entry(folder, none), end; !none && entry != end;
       entry.increment(none)) {
    struct stat status {};
    if (::stat(entry->path().c_str(), &status) != 0) continue;
    text += fmt::format("{} {}\n", entry->path().filename().string(), status.st_ino);
  }
  return text;
}

// Returns look(warn). If that fails or warns, and the folder has changed meanwhile, looks again.
template <class Look>
auto look_in(const fs::path& folder, const Warn& warn, const Look& look) {
  for (int attempt = 1;; ++attempt) {
    const std::string before = contents_of(folder);
    if (before.find(kReplaced) != std::string::npos && attempt < kMaxAttempts) {
      std::this_thread::sleep_for(kReplacing);
      continue;
    }
    std::vector<std::string> problems;
    const auto changed = [&] { return attempt < kMaxAttempts && contents_of(folder) != before; };
    const auto report = [&] {
      for (const std::string& problem : problems) warn(problem);
    };
    try {
      auto found = look([&](const std::string& problem) { problems.push_back(problem); });
      if (!problems.empty() && changed()) continue;
      report();
      return found;
    } catch (const DataError&) {
      if (changed()) continue;
      report();
      throw;
    }
  }
}

std::optional<FoundCheckpoint> look_for_newest(const fs::path& folder, const Warn& warn) {
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

// Returns the newest checkpoint or, of a run with train.early_stopping, the one that its state
// records as the best.
std::optional<FoundCheckpoint> look_for_result(const fs::path& folder, const Warn& warn) {
  std::optional<FoundCheckpoint> newest = look_for_newest(folder, warn);
  if (!newest || !newest->state.stopping || !newest->state.best) return newest;
  const fs::path best = folder / checkpoint_name(newest->state.best->step);
  std::error_code none;
  if (fs::exists(best, none)) return open_checkpoint(best);
  warn(fmt::format("the best checkpoint, {}, is missing; {} is used", best.string(),
                   newest->path.filename().string()));
  return newest;
}

// Returns the checkpoint that `best` or `latest` names. Each checkpoint records what they should
// name, so they may be missing.
std::optional<FoundCheckpoint> look_for_named(const fs::path& pointer, const Warn& warn) {
  std::error_code none;
  const auto named = named_by(pointer);
  if (named && fs::exists(*named, none)) return open_checkpoint(*named);
  const fs::path folder = pointer.parent_path();
  std::optional<FoundCheckpoint> newest = look_for_newest(folder, warn);
  if (!newest || pointer.filename() == kLatest) return newest;
  if (!newest->state.best) return std::nullopt;
  return open_checkpoint(folder / checkpoint_name(newest->state.best->step));
}

bool is_pointer(const fs::path& path) {
  return path.filename() == kBest || path.filename() == kLatest;
}

// Opens the checkpoint that the path names. For a run or a folder of checkpoints, returns the
// result of look(folder, warn).
template <class Look>
FoundCheckpoint open_or_look(const fs::path& path, const Warn& warn, const Look& look) {
  std::error_code none;
  std::optional<FoundCheckpoint> found;
  if (is_pointer(path) && !fs::is_directory(path, none)) {
    found = look_in(path.parent_path(), warn,
                    [&](const Warn& problem) { return look_for_named(path, problem); });
    if (found) return *found;
  }
  if (!fs::exists(path, none)) throw DataError(path.string(), "no such folder");
  if (!fs::is_directory(path, none)) {
    throw DataError(path.string(), "is not a checkpoint: name a run's folder or a step-N in it");
  }
  const fs::path absolute = fs::absolute(path).lexically_normal();
  const fs::path name =
      absolute.has_filename() ? absolute.filename() : absolute.parent_path().filename();
  if (is_checkpoint_name(name.string()) || has_checkpoint_file(path)) return open_checkpoint(path);
  const fs::path folder =
      fs::is_directory(path / "checkpoints", none) ? path / "checkpoints" : path;
  found = look_in(folder, warn, [&](const Warn& problem) { return look(folder, problem); });
  if (found) return *found;
  throw DataError(path.string(), "has no checkpoint");
}

}  // namespace

bool has_checkpoint_file(const fs::path& folder) {
  std::error_code none;
  return std::ranges::any_of(std::array{kManifest, kOptimizerFile, kState},
                             [&](const char* name) { return fs::exists(folder / name, none); });
}

std::optional<FoundCheckpoint> newest_checkpoint(const fs::path& folder, const Warn& warn) {
  return look_in(folder, warn,
                 [&](const Warn& problem) { return look_for_newest(folder, problem); });
}

FoundCheckpoint find_checkpoint(const fs::path& path, const Warn& warn) {
  return open_or_look(path, warn, look_for_newest);
}

FoundCheckpoint find_for_inference(const fs::path& path, const Warn& warn) {
  return open_or_look(path, warn, look_for_result);
}

void warn_on_stderr(const std::string& text) {
  fmt::print(stderr, "warning: {}\n", printable_message(text));
}

}  // namespace trireme::train
