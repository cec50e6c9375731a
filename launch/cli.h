// CLI11's functions that take long to compile, compiled once.
#pragma once

#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace trireme {

// A new command of `parent`.
CLI::App& add_command(CLI::App& parent, const std::string& name, const std::string& help);

// `value` is what the option sets. For the types at the end of cli.cc; others:
// CLI::App::add_option.
template <class T>
CLI::Option* add_option(CLI::App& command, const std::string& name, T& value,
                        const std::string& help);
CLI::Option* add_flag(CLI::App& command, const std::string& name, bool& value,
                      const std::string& help);

}  // namespace trireme
