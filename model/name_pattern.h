// Parameters as configurations name them: by regular expressions.
#pragma once

#include <regex>
#include <span>
#include <string>

namespace trireme::model {

struct Graph;

class NamePattern {
 public:
  // `field` of the configuration has it. Throws ConfigError where it is no regular expression, has
  // more than 1000 characters, or refers back to a group (\1).
  NamePattern(std::string pattern, std::string field);

  // Whether it matches the whole name: "layer1.0.conv1.weight".
  bool matches(const std::string& name) const { return std::regex_match(name, regex_); }
  // Throws ConfigError, which says that it matches no parameter and what is like it.
  [[noreturn]] void refuse(const Graph& graph) const;

 private:
  std::string pattern_, field_;
  std::regex regex_;
};

}  // namespace trireme::model
