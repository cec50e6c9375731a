#include <fmt/format.h>

#include <regex>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "model/graph.h"
#include "model/passes/passes.h"

namespace trireme::model {
namespace {

std::string field(size_t pattern) { return fmt::format("model.freeze[{}]", pattern); }

std::regex compiled(const std::string& pattern, size_t index) {
  try {
    return std::regex(pattern);
  } catch (const std::regex_error& error) {
    throw ConfigError(field(index),
                      fmt::format("'{}' is no regular expression: {}", pattern, error.what()));
  }
}

// What one would write to freeze a parameter, or all of a layer or a group of layers.
std::vector<std::string> likely_patterns(const Graph& graph) {
  std::vector<std::string> likely;
  for (const Node& node : graph.nodes) {
    for (const Signature::Parameter& parameter : node.signature.parameters) {
      const std::string name = node.name + "." + parameter.name;
      likely.push_back(name);
      for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
        likely.push_back(name.substr(0, dot) + ".*");
      }
    }
  }
  return likely;
}

}  // namespace

void freeze(Graph& graph, std::span<const std::string> patterns) {
  if (patterns.empty()) return;
  for (size_t i = 0; i < patterns.size(); ++i) {
    const std::regex pattern = compiled(patterns[i], i);
    bool matched = false;
    for (Node& node : graph.nodes) {
      for (Signature::Parameter& parameter : node.signature.parameters) {
        if (!std::regex_match(node.name + "." + parameter.name, pattern)) continue;
        parameter.frozen = matched = true;
      }
    }
    if (!matched) {
      throw ConfigError(field(i),
                        fmt::format("'{}' matches the whole name of no parameter{}", patterns[i],
                                    did_you_mean(patterns[i], likely_patterns(graph))));
    }
  }
  if (std::ranges::none_of(graph.nodes, [](const Node& n) { return n.signature.trained(); })) {
    throw ConfigError("model.freeze", "all parameters are frozen, so there is nothing to train");
  }
}

}  // namespace trireme::model
