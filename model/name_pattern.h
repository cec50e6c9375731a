// A regular expression with which a configuration selects parameters.
#pragma once

#include <memory>
#include <span>
#include <string>

namespace re2 {
class RE2;
}  // namespace re2

namespace trireme::model {

struct Graph;

class NamePattern {
 public:
  // `field` is the configuration field that contains the pattern. Throws ConfigError if RE2 does
  // not support the pattern, for example because it looks ahead or contains a back-reference (\1).
  NamePattern(std::string pattern, std::string field);

  // Returns whether it matches the whole name, such as "layer1.0.conv1.weight".
  bool matches(const std::string& name) const;
  // Throws a ConfigError that says that the pattern matches no parameter and suggests a similar
  // name.
  [[noreturn]] void throw_no_match(const Graph& graph) const;

 private:
  std::string pattern_, field_;
  std::shared_ptr<const re2::RE2> regex_;
};

}  // namespace trireme::model
