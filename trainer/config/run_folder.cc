#include "trainer/config/run_folder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <system_error>

#include "core/error.h"
#include "core/file.h"
#include "trainer/config/input_files.h"

namespace trireme::train {

namespace fs = std::filesystem;

namespace {

// Returns a name with other characters than letters, digits, '-', '_' and '.' replaced, and
// shortened. The name of a model may be from a file.
std::string as_file_name(std::string name) {
  constexpr size_t kMaxLength = 100;
  name.resize(std::min(name.size(), kMaxLength));
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != '.') c = '_';
  }
  return name;
}

[[noreturn]] void refuse_folder(const fs::path& path, const std::string& cause) {
  throw Error(fmt::format("run folder {} cannot be used: {}; choose another with --run-dir",
                          path.string(), cause));
}

}  // namespace

fs::path create_run_folder(const RunConfig& config) {
  const auto now = fmt::localtime(std::time(nullptr));
  const fs::path wanted = fs::path(kRunsFolder) /
                          fmt::format("{}-{:%Y%m%d-%H%M%S}", as_file_name(model_name(config)), now);
  fs::path path = wanted;
  try {
    create_folders(kRunsFolder);
  } catch (const Error& error) {
    refuse_folder(path, error.what());
  }
  for (int i = 2; ::mkdir(path.c_str(), 0777) != 0; ++i) {
    if (errno != EEXIST) refuse_folder(path, std::strerror(errno));
    path = wanted.string() + fmt::format("-{}", i);
  }
  return path;
}

RunFolder find_run(const fs::path& path) {
  std::error_code error;
  // `best` and `latest` may be missing: each checkpoint records what they should name.
  const bool pointer = path.filename() == "best" || path.filename() == "latest";
  if (!fs::exists(path, error) && !(pointer && fs::is_directory(path.parent_path(), error))) {
    if (error) throw ConfigError(path.string(), "cannot be read: " + error.message());
    throw ConfigError(
        path.string(),
        "no such run or checkpoint; name a run's folder (runs/...) or a checkpoint in it");
  }
  constexpr int kLevels = 4;
  RunFolder run{fs::weakly_canonical(path)};
  for (int level = 0; level < kLevels && !run.path.empty(); ++level) {
    if (fs::exists(run.config(), error)) return run;
    if (error) throw ConfigError(run.config().string(), "cannot be read: " + error.message());
    run.path = run.path.parent_path();
  }
  throw ConfigError(
      path.string(),
      fmt::format("no {} here or above: this is not the folder of a run; a checkpoint "
                  "is only used within its run's folder",
                  run.config().filename().string()));
}

fs::path run_of_checkpoint(const fs::path& path) {
  fs::path resolved = fs::weakly_canonical(path);
  if (!resolved.has_filename()) resolved = resolved.parent_path();
  if (fs::is_directory(resolved / "checkpoints")) return resolved;
  if (resolved.filename() == "checkpoints") return resolved.parent_path();
  if (resolved.parent_path().filename() == "checkpoints") {
    return resolved.parent_path().parent_path();
  }
  return {};
}

fs::path RunFolder::log(int rank) const { return path / "log" / fmt::format("rank-{}.log", rank); }

std::vector<fs::path> RunFolder::files() const {
  return {config(),
          samples(),
          environment(),
          metrics(),
          evaluation(),
          summary(),
          path / "steps.csv",
          path / "evaluations.csv",
          path / "trace.json",
          path / "profile.txt"};
}

bool RunFolder::has(const fs::path& other) const {
  std::error_code none;
  for (const fs::path& file : files()) {
    if (fs::equivalent(file, other, none)) return true;
  }
  for (const fs::path& folder : {checkpoints(), tokenizer(), tensorboard(), path / "log"}) {
    for (fs::recursive_directory_iterator at(folder, none), end; !none && at != end;
         at.increment(none)) {
      std::error_code missing;
      if (fs::equivalent(at->path(), other, missing)) return true;
    }
  }
  return false;
}

namespace {

// Returns whether a run has used the folder. A copy of it may lack the lock.
bool is_used(const RunFolder& folder) {
  std::error_code none;
  if (fs::exists(folder.path / ".lock", none)) return true;
  for (fs::directory_iterator at(folder.checkpoints(), none), end; !none && at != end;
       at.increment(none)) {
    std::error_code missing;
    if (fs::exists(at->path() / "manifest.json", missing)) return true;
  }
  return false;
}

}  // namespace

void RunFolder::require_own_files(const RunConfig& config) const {
  std::error_code none;
  const bool is_run = is_used(*this);
  for (const fs::path& file : files()) {
    if (!fs::is_regular_file(file, none)) continue;
    const std::string name = file.filename().string();
    if (!is_run) {
      throw ConfigError("run_dir", fmt::format("{} is not the folder of a run, but has {}, which "
                                               "the run would replace; choose another with "
                                               "--run-dir",
                                               path.string(), name));
    }
    const std::string input = input_at(file, config);
    if (input.empty()) continue;
    throw ConfigError("run_dir", fmt::format("the run would replace {} in {}, which is also its "
                                             "input {}; choose another with --run-dir",
                                             name, path.string(), input));
  }
}

void RunFolder::prepare() const {
  try {
    create_folders(path / "log");
    create_folders(checkpoints());
    static_cast<void>(open_own_folder(checkpoints()));
    const fs::path probe = path / ".writable";
    write_durably(probe, "");
    fs::remove(probe);
  } catch (const fs::filesystem_error& error) {
    refuse_folder(path, error.code().message());
  } catch (const Error& error) {
    refuse_folder(path, error.what());
  }
}

}  // namespace trireme::train
