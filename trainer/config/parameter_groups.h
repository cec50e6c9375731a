// Parameter groups of the optimizer: optimizer.group.
#pragma once

#include <string>
#include <vector>

#include "model/graph.h"
#include "model/name_pattern.h"
#include "trainer/config/config.pb.h"

namespace trireme::train {

// Finds the group of a parameter by its name. `config` must outlive this object.
class ParameterGroups {
 public:
  // Throws ConfigError if a pattern is not a valid regular expression.
  explicit ParameterGroups(const OptimizerConfig& config);

  // Returns the first group whose pattern matches the name; null if there is none.
  const ParameterGroupConfig* of(const std::string& parameter) const;
  // Throws ConfigError if a group has no trainable parameters.
  void check(const model::Graph& graph) const;

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  size_t index_of(const std::string& parameter) const;

  const OptimizerConfig& config_;
  std::vector<model::NamePattern> patterns_;
};

}  // namespace trireme::train
