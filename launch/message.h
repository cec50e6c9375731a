// Prints messages to standard output.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "core/text.h"

namespace trireme::cli {

// Like fmt::print, for text with paths or names from the command line or from files, which must not
// control the terminal.
template <class... Args>
void print_message(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fputs(printable_message(text).c_str(), stdout);
}

}  // namespace trireme::cli
