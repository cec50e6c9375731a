#include "trainer/run_folder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <ctime>
#include <system_error>

#include "core/error.h"
#include "trainer/file.h"

namespace trireme {

namespace fs = std::filesystem;

fs::path default_run_folder(const RunConfig& config) {
  const auto now = fmt::localtime(std::time(nullptr));
  const fs::path wanted =
      fs::path("runs") / fmt::format("{}-{:%Y%m%d-%H%M%S}", model_name(config), now);
  fs::path path = wanted;
  std::error_code none;
  for (int i = 2; fs::exists(path, none); ++i) path = wanted.string() + fmt::format("-{}", i);
  return path;
}

fs::path RunFolder::log(int rank) const { return path / "log" / fmt::format("rank-{}.log", rank); }

void RunFolder::prepare() const {
  try {
    fs::create_directories(path / "log");
    fs::create_directories(checkpoints());
    const fs::path probe = path / ".writable";
    write_durably(probe, "");
    fs::remove(probe);
  } catch (const fs::filesystem_error& error) {
    throw Error(fmt::format("run folder {} cannot be used: {}; choose another with --run-dir",
                            path.string(), error.code().message()));
  } catch (const Error& error) {
    throw Error(fmt::format("run folder {} cannot be used: {}; choose another with --run-dir",
                            path.string(), error.what()));
  }
}

RankLog::RankLog(const fs::path& path) {
  std::error_code ignored;  // the open below tells
  fs::create_directories(path.parent_path(), ignored);
  file_ = std::fopen(path.c_str(), "ae");
}

RankLog::~RankLog() {
  if (file_) std::fclose(file_);
}

void RankLog::line(const std::string& text) {
  if (!file_) return;
  const std::time_t now = std::time(nullptr);
  const std::string entry = fmt::format("{:%Y-%m-%dT%H:%M:%S}Z {}\n", fmt::gmtime(now), text);
  std::fwrite(entry.data(), 1, entry.size(), file_);
  std::fflush(file_);
}

}  // namespace trireme
