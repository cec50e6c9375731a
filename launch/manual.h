// The manual pages, from the same texts as help.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

namespace trireme::cli {

// "trireme.1", "trireme-train.1", "trireme-data-show.1", ...: the pages of the program and of each
// listed command, as roff, and of the scripts that are installed beside it: launch/NAME as
// "trireme-NAME.1", from the comment at its head. Their date is $SOURCE_DATE_EPOCH
// (reproducible-builds.org) or today.
std::map<std::string, std::string> manual(const CLI::App& app,
                                          const std::vector<std::string>& scripts);

}  // namespace trireme::cli
