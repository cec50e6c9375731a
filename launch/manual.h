// Generates the manual pages from the help texts.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

namespace trireme::cli {

// Returns the pages as roff, by file name ("trireme.1", "trireme-data-show.1"): of the program, of
// each command that is not hidden, and of each script launch/NAME, as "trireme-NAME.1", from its
// head comment. Their date is $SOURCE_DATE_EPOCH (reproducible-builds.org) or today.
std::map<std::string, std::string> manual(const CLI::App& app,
                                          const std::vector<std::string>& scripts);

}  // namespace trireme::cli
