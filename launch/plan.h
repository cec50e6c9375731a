// A run as it would be on one rank, compiled and planned but not started.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launch/options.h"
#include "model/program.h"
#include "trainer/step.h"

namespace trireme {

struct RankPlan {
  BatchPlan batch;
  std::unique_ptr<Device> device;
  std::unique_ptr<Backend> backend;
  Parameters parameters;
  std::unique_ptr<Program> program;
  std::vector<std::pair<std::string, size_t>> memory;  // bytes by use; none is 0
  size_t checkpoint_bytes = 0;                         // about what a checkpoint takes

  size_t memory_bytes() const;
};

// What the network is to tell: "10 classes", "target f32 [2]".
std::string target_text(const SampleSpec& samples);

// The same on every of `ranks`. `graph` outlives it. Throws ConfigError where the device or the
// precision is not to be had here.
std::unique_ptr<RankPlan> plan_rank(const Target& target, const Graph& graph, int ranks);

}  // namespace trireme
