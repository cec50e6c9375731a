#include "trainer/config/parameter_groups.h"

#include <fmt/format.h>

#include "core/error.h"

namespace trireme::train {
namespace {

std::string field_of(size_t group) { return fmt::format("optimizer.group[{}].parameters", group); }

}  // namespace

ParameterGroups::ParameterGroups(const OptimizerConfig& config) : config_(config) {
  for (const ParameterGroupConfig& group : config.group()) {
    patterns_.emplace_back(group.parameters(), field_of(patterns_.size()));
  }
}

size_t ParameterGroups::index_of(const std::string& parameter) const {
  for (size_t i = 0; i < patterns_.size(); ++i) {
    if (patterns_[i].matches(parameter)) return i;
  }
  return kNone;
}

const ParameterGroupConfig* ParameterGroups::of(const std::string& parameter) const {
  const size_t index = index_of(parameter);
  return index == kNone ? nullptr : &config_.group(static_cast<int>(index));
}

void ParameterGroups::check(const model::Graph& graph) const {
  for (size_t i = 0; i < patterns_.size(); ++i) {
    bool used = false, matched = false;
    size_t earlier = kNone;  // a group that contains matching parameters
    for (const model::Node& node : graph.nodes) {
      for (const auto& parameter : node.signature.parameters) {
        const std::string name = parameter_name(node, parameter);
        if (!patterns_[i].matches(name)) continue;
        matched = true;
        const size_t group = index_of(name);
        if (group < i) earlier = group;
        used = used || (group == i && !parameter.frozen);
      }
    }
    if (used) continue;
    if (!matched) patterns_[i].throw_no_match(graph);
    const std::string& pattern = config_.group(static_cast<int>(i)).parameters();
    if (earlier == kNone) {
      throw ConfigError(field_of(i), fmt::format("'{}' matches only parameters that are frozen by "
                                                 "model.freeze",
                                                 pattern));
    }
    throw ConfigError(
        field_of(i), fmt::format("'{}' matches only parameters of the earlier optimizer.group[{}]; "
                                 "put the more specific pattern first",
                                 pattern, earlier));
  }
}

}  // namespace trireme::train
