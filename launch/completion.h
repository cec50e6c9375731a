// Completes command lines for shells.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace trireme::cli {

struct Completion {
  std::string word;
  std::string description;  // short; may be empty
};

// Returns the completions of the last of `words`, which are the words after the program's name; the
// last one may be incomplete or empty. Completes commands, options, their values, networks, fields
// of --set, files and runs. A completion that ends in "/", "." or "=" is incomplete: more must
// follow it.
std::vector<Completion> complete(const CLI::App& app, const std::vector<std::string>& words);

}  // namespace trireme::cli
