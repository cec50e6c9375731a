// Which of a library's algorithms is the fastest here: measured once, then remembered.
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
  std::string name;  // tells it from the others
  // Null when it cannot be had after all, for instance within kWorkspaceLimit.
  std::function<AlgorithmPtr()> build;
};

// More workspace than this no algorithm may ask for.
inline constexpr int64_t kWorkspaceLimit = int64_t{1} << 30;

class Tuner {
 public:
  // `measured_on` names library and device ("cuDNN 9.19.0 on NVIDIA H200"): what was measured on
  // another counts for nothing. What is learnt is kept in a file of `folder`; processes that use it
  // at the same time agree on what was written first. Empty: nowhere. Without `measure` what is
  // not remembered is not measured either: the first candidate that can be built is chosen, and
  // nothing is written.
  Tuner(Device& device, const std::string& folder, std::string measured_on, bool measure = true);

  // The fastest of the candidates, which come best guess first. `key` says what the work is,
  // `bytes` how large each of its arguments; `list` is only asked where this tuner has not chosen
  // before. Throws Unsupported when no candidate can be built or none runs; Error when one leaves
  // the device unusable. Both name those that failed.
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
  AlgorithmPtr remembered(const std::string& key, std::span<const Candidate> candidates) const;
  const Built& agree(const std::string& key, const Built& best, const std::vector<Built>& built);

  Device& device_;
  std::string measured_on_;
  bool measure_;
  std::string file_;                            // empty: none
  std::map<std::string, std::string> names_;    // of the candidates chosen, by key
  std::map<std::string, AlgorithmPtr> chosen_;  // null: there is none
  std::unique_ptr<Stream> stream_;  // to measure on, once needed: handles of libraries name it
};

}  // namespace trireme::ops::cuda
