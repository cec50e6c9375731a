#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "model/graph.h"
#include "model/name_pattern.h"
#include "model/passes/passes.h"

namespace trireme::model {

void freeze(Graph& graph, std::span<const std::string> patterns) {
  if (patterns.empty()) return;
  for (size_t i = 0; i < patterns.size(); ++i) {
    const NamePattern pattern(patterns[i], fmt::format("model.freeze[{}]", i));
    bool matched = false;
    for (Node& node : graph.nodes) {
      for (Signature::Parameter& parameter : node.signature.parameters) {
        if (!pattern.matches(parameter_name(node, parameter))) continue;
        parameter.frozen = matched = true;
      }
    }
    if (!matched) pattern.throw_no_match(graph);
  }
  if (std::ranges::none_of(graph.nodes, [](const Node& n) { return n.signature.trained(); })) {
    throw ConfigError("model.freeze", "all parameters are frozen, so there is nothing to train");
  }
}

}  // namespace trireme::model
