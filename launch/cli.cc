#include "launch/cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <type_traits>

namespace trireme::cli {

Argument Argument::required() {
  option_->required();
  return *this;
}

Argument Argument::metavar(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Argument Argument::group(const std::string& heading) {
  option_->group(heading);
  return *this;
}

Argument Argument::show_default() {
  option_->capture_default_str();
  return *this;
}

Argument Argument::environment(const std::string& variable) {
  option_->envname(variable);
  return *this;
}

Argument Argument::one_value_each() {
  option_->allow_extra_args(false);
  return *this;
}

namespace {

// Returns a check that the text is a number for which `holds` is true. `what` describes the
// condition in the error message.
std::function<std::string(const std::string&)> number_check(std::function<bool(double)> holds,
                                                            const std::string& what) {
  return [holds = std::move(holds), what](const std::string& text) {
    double number = 0;
    const bool is_number = CLI::detail::lexical_cast(text, number);
    return is_number && std::isfinite(number) && holds(number)
               ? ""
               : fmt::format("must be {}, got {}", what, text);
  };
}

}  // namespace

Argument Argument::positive() {
  return check(number_check([](double number) { return number > 0; }, "greater than 0"));
}

Argument Argument::not_negative() {
  return check(number_check([](double number) { return number >= 0; }, "0 or greater"));
}

Argument Argument::between(int smallest, int largest) {
  return check(number_check([=](double number) { return number >= smallest && number <= largest; },
                            fmt::format("from {} to {}", smallest, largest)));
}

Argument Argument::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

Argument Argument::bytes() {
  option_->transform(CLI::AsSizeValue(false).description(""));
  return *this;
}

Argument Argument::seconds() {
  option_->transform(
      CLI::AsNumberWithUnit(std::map<std::string, double>{{"s", 1}, {"m", 60}, {"h", 3600}}));
  return *this;
}

Argument Argument::check(std::function<std::string(const std::string&)> problem_of) {
  option_->check(std::move(problem_of));
  return *this;
}

ArgumentParser ArgumentParser::add_command(const std::string& name, const std::string& help) {
  return ArgumentParser(*app_->add_subcommand(name, help));
}

Argument ArgumentParser::add_flag(const std::string& name, bool& value, const std::string& help) {
  return Argument(*app_->add_flag(name, value, help));
}

void ArgumentParser::add_deprecated_flag(const std::string& name, const std::string& replacement,
                                         bool& value) {
  const auto set = [name, replacement, &value] {
    value = true;
    fmt::print(stderr, "warning: {} is deprecated; use {}\n", name, replacement);
  };
  app_->add_flag_callback(name, set)->group("");
}

Argument ArgumentParser::add_choice(const std::string& name, const std::vector<std::string>& names,
                                    const std::string& help, std::function<void(size_t)> choose) {
  const auto set = [names, choose = std::move(choose)](const std::string& given) {
    choose(std::ranges::find(names, given) - names.begin());
  };
  return Argument(*app_->add_option_function<std::string>(name, set, help)).one_of(names);
}

void ArgumentParser::epilog(const std::string& text) { app_->footer(text); }

void ArgumentParser::group(const std::string& heading) { app_->group(heading); }

void ArgumentParser::require_command() { app_->require_subcommand(1); }

void ArgumentParser::on_chosen(std::function<void()> callback) {
  app_->callback(std::move(callback));
}

namespace {

// The type of an option's number.
template <class T>
struct NumberOf {
  using Type = T;
};
template <class T>
struct NumberOf<std::optional<T>> {
  using Type = T;
};

// CLI11 takes -1 for an unsigned number, and numbers that are too large for the largest one.
template <class Integer>
std::string integer_problem(const std::string& text) {
  Integer number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end) return "";
  using Limits = std::numeric_limits<Integer>;
  return fmt::format("must be an integer from {} to {}, got {}", Limits::min(), Limits::max(),
                     text);
}

}  // namespace

template <class T>
Argument ArgumentParser::add_option(const std::string& name, T& value, const std::string& help) {
  Argument argument(*app_->add_option(name, value, help));
  using Number = typename NumberOf<T>::Type;
  if constexpr (std::is_integral_v<Number>) argument.check(integer_problem<Number>);
  return argument;
}

#define TRIREME_OPTION_TYPE(...)                                                            \
  template Argument ArgumentParser::add_option(const std::string& name, __VA_ARGS__& value, \
                                               const std::string& help)
TRIREME_OPTION_TYPE(std::string);
TRIREME_OPTION_TYPE(std::vector<std::string>);
TRIREME_OPTION_TYPE(int);
TRIREME_OPTION_TYPE(int64_t);
TRIREME_OPTION_TYPE(uint64_t);
TRIREME_OPTION_TYPE(double);
TRIREME_OPTION_TYPE(std::optional<int64_t>);
TRIREME_OPTION_TYPE(std::optional<uint64_t>);
TRIREME_OPTION_TYPE(std::optional<double>);
#undef TRIREME_OPTION_TYPE

}  // namespace trireme::cli
