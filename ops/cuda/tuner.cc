#include "ops/cuda/tuner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/file.h"

namespace trireme::ops::cuda {
namespace {

// Candidates to measure. Libraries list candidates best first; later ones have never been clearly
// better.
constexpr size_t kMaxMeasured = 8;
constexpr int kRuns = 4;  // between two events
constexpr int kSamples = 5;
// A candidate this many times slower than the best is abandoned after kMinSamples samples.
constexpr double kAbandonFactor = 1.5;
constexpr int kMinSamples = 2;

using Names = std::map<std::string, std::string>;

std::string file_in(const std::string& folder, std::string name) {
  if (folder.empty()) return "";
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.') c = '-';
  }
  return folder + "/" + name + ".json";
}

// Returns the cached choices, or none if the file is missing, damaged, or from another library or
// device.
Names read(const std::string& file, const std::string& measured_on) {
  std::ifstream in(file);
  try {
    const nlohmann::json json = nlohmann::json::parse(in);
    if (json.at("measured_on") != measured_on) return {};
    return json.at("choices").get<Names>();
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

// A file lock that one process holds at a time, if the file system supports locks. Released when
// the process ends.
class Lock {
 public:
  explicit Lock(const std::string& file)
      : descriptor_(::open(file.c_str(), O_CREAT | O_RDWR, 0666)) {
    if (descriptor_ >= 0) ::flock(descriptor_, LOCK_EX);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

 private:
  int descriptor_;
};

// Memory for measurements.
struct Operands {
  std::vector<Buffer> buffers;
  std::vector<void*> args;
  Buffer workspace;
};

// Returns nullopt if the device does not have enough memory.
std::optional<Operands> allocate(Device& device, std::span<const size_t> bytes,
                                 size_t workspace_bytes, Stream& stream) {
  Operands operands;
  try {
    for (size_t size : bytes) {
      operands.args.push_back(operands.buffers.emplace_back(device.allocate(size)).data());
      device.fill_zero(operands.args.back(), size, stream);
    }
    operands.workspace = device.allocate(workspace_bytes);
  } catch (const DeviceError&) {
    return std::nullopt;
  }
  return operands;
}

// Measures algorithms on a stream, with a recording if the device supports it: recorded work does
// not wait for the host, as in a training step.
class Stopwatch {
 public:
  explicit Stopwatch(Device& device, Stream& stream)
      : device_(device),
        stream_(stream),
        start_(device.create_event(EventKind::kTimed)),
        end_(device.create_event(EventKind::kTimed)) {}

  // Returns the seconds of one run, the minimum over several samples because interference only
  // makes runs longer. Stops early if the algorithm is slower than `limit`.
  double seconds(const Algorithm& algorithm, const Operands& operands, double limit) {
    algorithm.run(stream_, operands.args, operands.workspace.data());  // warm-up: loads its code
    stream_.synchronize();
    const auto work = [&] {
      stream_.record(*start_);
      for (int i = 0; i < kRuns; ++i) {
        algorithm.run(stream_, operands.args, operands.workspace.data());
      }
      stream_.record(*end_);
    };
    const std::unique_ptr<Recording> recording = device_.record(stream_, work);
    double best_seconds = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kSamples && (i < kMinSamples || best_seconds < limit); ++i) {
      recording ? recording->replay(stream_) : work();
      stream_.synchronize();
      best_seconds = std::min(best_seconds, device_.seconds_between(*start_, *end_) / kRuns);
    }
    return best_seconds;
  }

 private:
  Device& device_;
  Stream& stream_;
  std::unique_ptr<Event> start_, end_;
};

// Returns true if the device is still usable: after some CUDA errors a process cannot use it any
// more.
bool works(Stream& stream) {
  try {
    stream.synchronize();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

Tuner::Tuner(Device& device, const std::string& folder, std::string measured_on, bool measure)
    : device_(device),
      measured_on_(std::move(measured_on)),
      measure_(measure),
      file_(file_in(folder, measured_on_)),
      names_(read(file_, measured_on_)) {}

AlgorithmPtr Tuner::choose(const std::string& key, std::span<const size_t> bytes,
                           const std::function<std::vector<Candidate>()>& list) {
  const auto [chosen, unknown] = chosen_.try_emplace(key);
  AlgorithmPtr& algorithm = chosen->second;
  if (unknown) algorithm = find(key, bytes, list());
  if (!algorithm) throw Unsupported("there is no algorithm for " + key);
  return algorithm;
}

AlgorithmPtr Tuner::find(const std::string& key, std::span<const size_t> bytes,
                         const std::vector<Candidate>& candidates) {
  if (AlgorithmPtr algorithm = cached_choice(key, candidates)) return algorithm;
  std::vector<Built> built;
  for (const Candidate& candidate : candidates) {
    if (built.size() == (measure_ ? kMaxMeasured : 1)) break;
    if (AlgorithmPtr one = candidate.build()) built.push_back({candidate.name, std::move(one)});
  }
  if (built.empty()) return nullptr;
  if (!measure_) return built.front().algorithm;
  return agree(key, fastest(key, built, bytes), built).algorithm;
}

AlgorithmPtr Tuner::cached_choice(const std::string& key,
                                  std::span<const Candidate> candidates) const {
  const auto name = names_.find(key);
  if (name == names_.end()) return nullptr;
  for (const Candidate& candidate : candidates) {
    if (candidate.name == name->second) return candidate.build();
  }
  return nullptr;
}

// Candidates that fail are skipped. If there is not enough memory to measure, the first candidate
// is chosen. After an error from which the device does not recover, no other candidate could run
// either, so the error is reported.
const Tuner::Built& Tuner::fastest(const std::string& key, const std::vector<Built>& candidates,
                                   std::span<const size_t> bytes) {
  if (candidates.size() == 1) return candidates.front();
  size_t workspace_bytes = 0;
  for (const Built& candidate : candidates) {
    workspace_bytes = std::max(workspace_bytes, candidate.algorithm->workspace_bytes());
  }
  if (!stream_) stream_ = device_.create_stream(StreamKind::kCompute);
  const auto operands = allocate(device_, bytes, workspace_bytes, *stream_);
  if (!operands) return candidates.front();
  Stopwatch stopwatch(device_, *stream_);
  const Built* best = nullptr;
  double best_seconds = std::numeric_limits<double>::infinity();
  std::string failures;
  for (const Built& candidate : candidates) {
    try {
      const double seconds =
          stopwatch.seconds(*candidate.algorithm, *operands, kAbandonFactor * best_seconds);
      if (seconds < best_seconds) {
        best_seconds = seconds;
        best = &candidate;
      }
    } catch (const Error& error) {
      failures += fmt::format("; {}: {}", candidate.name, error.what());
      if (!works(*stream_)) {
        throw Error(fmt::format("measuring {}: an algorithm has left the device unusable{}", key,
                                failures));
      }
    }
  }
  if (!best) {
    throw Unsupported(fmt::format("measuring {}: no algorithm runs{}", key, failures));
  }
  return *best;
}

// Processes that start together measure the same work. Noise must not make them choose differently
// from each other or from a later run.
const Tuner::Built& Tuner::agree(const std::string& key, const Built& best,
                                 const std::vector<Built>& built) {
  if (file_.empty()) return best;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(file_).parent_path(), ignored);
  const Lock lock(file_ + ".lock");
  Names names = read(file_, measured_on_);
  std::string& name = names.try_emplace(key, best.name).first->second;
  const auto agreed =
      std::find_if(built.begin(), built.end(), [&](const Built& one) { return one.name == name; });
  if (agreed == built.end()) name = best.name;
  names_ = std::move(names);
  try {
    replace_durably(file_,
                    nlohmann::json{{"measured_on", measured_on_}, {"choices", names_}}.dump(1));
  } catch (const Error&) {
    // Ignored: the next process measures again.
  }
  return agreed == built.end() ? best : *agreed;
}

}  // namespace trireme::ops::cuda
