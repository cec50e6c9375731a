// Generates the manual pages from the help texts.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

namespace trireme::cli {

// Returns the pages as roff, by file name ("trireme.1", "trireme-data-show.1"): one for the
// program, one for each command that is not hidden, and one ("trireme-NAME.1") for each script
// launch/NAME, from the comment at its beginning. Their date is $SOURCE_DATE_EPOCH
// (reproducible-builds.org) or today.
std::map<std::string, std::string> manual(const CLI::App& app,
                                          const std::vector<std::string>& scripts);

}  // namespace trireme::cli
