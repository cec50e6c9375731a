// Autotuning: measures which algorithm of a library is the fastest on this device, and caches the
// choice.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/cuda/algorithm.h"

namespace trireme::ops::cuda {

struct Candidate {
  std::string name;  // unique among the candidates
  // Returns the algorithm, or null if it cannot be built, for instance within kWorkspaceLimit.
  std::function<AlgorithmPtr()> build;
};

// Maximum workspace of an algorithm in bytes.
inline constexpr int64_t kWorkspaceLimit = int64_t{1} << 30;

// Chooses the algorithms of one library on one device. Used by the CUDA backend while planning.
class Tuner {
 public:
  // `measured_on` names the library and the device ("cuDNN 9.19.0 on NVIDIA H200"); measurements on
  // others are ignored. Choices are cached in a file in `folder`, unless it is empty; processes
  // that use it concurrently agree on the choice that is written first. If `measure` is false,
  // choices that are not cached are not measured: the first candidate that can be built is used,
  // and nothing is written.
  Tuner(Device& device, const std::string& folder, std::string measured_on, bool measure = true);

  // Returns the fastest of the candidates, which are ordered by the library's heuristic, best
  // first. `key` identifies the work, and `bytes` are the sizes of its arguments. `list` is called
  // only if this tuner has not chosen for `key` before. Throws Unsupported if no candidate can be
  // built or run, and Error if one leaves the device unusable; both messages name the failed
  // candidates.
  AlgorithmPtr choose(const std::string& key, std::span<const size_t> bytes,
                      const std::function<std::vector<Candidate>()>& list);

 private:
  struct Built {
    std::string name;
    AlgorithmPtr algorithm;
  };
  AlgorithmPtr find(const std::string& key, std::span<const size_t> bytes,
                    const std::vector<Candidate>& candidates);
  const Built& fastest(const std::string& key, const std::vector<Built>& candidates,
                       std::span<const size_t> bytes);
  AlgorithmPtr cached_choice(const std::string& key, std::span<const Candidate> candidates) const;
  const Built& agree(const std::string& key, const Built& best, const std::vector<Built>& built);

  Device& device_;
  std::string measured_on_;
  bool measure_;
  std::string file_;                            // empty disables the cache
  std::map<std::string, std::string> names_;    // names of the chosen candidates, by key
  std::map<std::string, AlgorithmPtr> chosen_;  // null if there is no algorithm
  std::unique_ptr<Stream> stream_;  // for measurements; handles of libraries refer to it
};

}  // namespace trireme::ops::cuda
