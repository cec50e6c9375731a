// The manual pages, from the same texts as help.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>

namespace trireme::cli {

// "trireme.1", "trireme-train.1", "trireme-data-show.1", ...: the pages of the program and of each
// listed command, as roff. Their date is $SOURCE_DATE_EPOCH (reproducible-builds.org) or today.
std::map<std::string, std::string> manual(const CLI::App& app);

}  // namespace trireme::cli
