#include "model/name_pattern.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "model/graph.h"

namespace trireme::model {
namespace {

constexpr size_t kMaxLength = 1000;  // libstdc++ compiles patterns recursively

std::regex compiled(const std::string& pattern, const std::string& field) {
  if (pattern.size() > kMaxLength) {
    throw ConfigError(field, fmt::format("'{}...' has {} characters; at most {} are allowed",
                                         pattern.substr(0, 40), pattern.size(), kMaxLength));
  }
  try {
#ifdef __GLIBCXX__
    // Without __polynomial, "((.*)*)*x" takes time exponential in the length of a name.
    return std::regex(pattern, std::regex::ECMAScript | std::regex_constants::__polynomial);
#else
    return std::regex(pattern);
#endif
  } catch (const std::regex_error& error) {
    throw ConfigError(field,
                      fmt::format("'{}' is not a regular expression: {}", pattern, error.what()));
  }
}

// Returns patterns to suggest: the names of parameters, layers and groups of layers.
std::vector<std::string> likely_patterns(const Graph& graph) {
  std::vector<std::string> likely;
  for (const Node& node : graph.nodes) {
    for (const Signature::Parameter& parameter : node.signature.parameters) {
      const std::string name = parameter_name(node, parameter);
      likely.push_back(name);
      for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
        likely.push_back(name.substr(0, dot) + ".*");
      }
    }
  }
  return likely;
}

}  // namespace

NamePattern::NamePattern(std::string pattern, std::string field)
    : pattern_(std::move(pattern)), field_(std::move(field)), regex_(compiled(pattern_, field_)) {}

void NamePattern::throw_no_match(const Graph& graph) const {
  throw ConfigError(field_, fmt::format("'{}' matches the whole name of no parameter{}", pattern_,
                                        did_you_mean(pattern_, likely_patterns(graph))));
}

}  // namespace trireme::model
