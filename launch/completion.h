// What can come next on a command line, for the shell.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace trireme::cli {

struct Completion {
  std::string word;
  std::string about;  // in a few words; may be empty
};

// `words` are those after the program's name, the last one the beginning of what is being typed
// (""): commands, options, values of options, networks, fields of --set, files, runs. A word that
// ends in "/", "." or "=" is not whole yet.
std::vector<Completion> complete(const CLI::App& app, const std::vector<std::string>& words);

}  // namespace trireme::cli
