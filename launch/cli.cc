#include "launch/cli.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <vector>

namespace trireme {

CLI::App& add_command(CLI::App& parent, const std::string& name, const std::string& help) {
  return *parent.add_subcommand(name, help);
}

CLI::Option* add_flag(CLI::App& command, const std::string& name, bool& value,
                      const std::string& help) {
  return command.add_flag(name, value, help);
}

template <class T>
CLI::Option* add_option(CLI::App& command, const std::string& name, T& value,
                        const std::string& help) {
  return command.add_option(name, value, help);
}

#define TRIREME_OPTION_TYPE(...)                                                                   \
  template CLI::Option* add_option(CLI::App& command, const std::string& name, __VA_ARGS__& value, \
                                   const std::string& help)
TRIREME_OPTION_TYPE(std::string);
TRIREME_OPTION_TYPE(std::vector<std::string>);
TRIREME_OPTION_TYPE(int);
TRIREME_OPTION_TYPE(int64_t);
TRIREME_OPTION_TYPE(double);
TRIREME_OPTION_TYPE(std::optional<int64_t>);
TRIREME_OPTION_TYPE(std::optional<uint64_t>);
TRIREME_OPTION_TYPE(std::optional<double>);
#undef TRIREME_OPTION_TYPE

}  // namespace trireme
