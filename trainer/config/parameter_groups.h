// Which parameters learn in a way of their own: optimizer.group.
#pragma once

#include <string>
#include <vector>

#include "model/graph.h"
#include "model/name_pattern.h"
#include "trainer/config/config.pb.h"

namespace trireme::train {

class ParameterGroups {
 public:
  // Throws ConfigError where a pattern is no regular expression. `config` outlives it.
  explicit ParameterGroups(const OptimizerConfig& config);

  // That of the parameter with this name, which is the first that matches; null: none does.
  const ParameterGroupConfig* of(const std::string& parameter) const;
  // Throws ConfigError for a group that no parameter to be trained is in.
  void check(const model::Graph& graph) const;

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  size_t index_of(const std::string& parameter) const;

  const OptimizerConfig& config_;
  std::vector<model::NamePattern> patterns_;
};

}  // namespace trireme::train
