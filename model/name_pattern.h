// A regular expression with which a configuration selects parameters.
#pragma once

#include <regex>
#include <span>
#include <string>

namespace trireme::model {

struct Graph;

class NamePattern {
 public:
  // `field` is the configuration field that contains the pattern. Throws ConfigError if the pattern
  // is not a regular expression, has more than 1000 characters, or contains a back-reference (\1).
  NamePattern(std::string pattern, std::string field);

  // Returns whether it matches the whole name, such as "layer1.0.conv1.weight".
  bool matches(const std::string& name) const { return std::regex_match(name, regex_); }
  // Throws a ConfigError that says that the pattern matches no parameter and suggests a similar
  // name.
  [[noreturn]] void throw_no_match(const Graph& graph) const;

 private:
  std::string pattern_, field_;
  std::regex regex_;
};

}  // namespace trireme::model
