#include "model/name_pattern.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <memory>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "model/graph.h"

namespace trireme::model {
namespace {

// Returns the beginning of a long text, for messages.
std::string beginning(const std::string& text) {
  constexpr size_t kLength = 40;
  return text.size() <= kLength ? text : text.substr(0, kLength) + "...";
}

std::shared_ptr<const re2::RE2> compiled(const std::string& pattern, const std::string& field) {
  re2::RE2::Options options(re2::RE2::Quiet);
  options.set_max_mem(
      512 << 10);  // refuses repetitions of repetitions, which take seconds to match
  auto regex = std::make_shared<const re2::RE2>(pattern, options);
  if (!regex->ok()) {
    throw ConfigError(field, fmt::format("'{}' is not a regular expression that RE2 supports: {}",
                                         beginning(pattern), beginning(regex->error())));
  }
  return regex;
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

bool NamePattern::matches(const std::string& name) const {
  return re2::RE2::FullMatch(name, *regex_);
}

void NamePattern::throw_no_match(const Graph& graph) const {
  throw ConfigError(field_, fmt::format("'{}' matches the whole name of no parameter{}", pattern_,
                                        did_you_mean(pattern_, likely_patterns(graph))));
}

}  // namespace trireme::model
