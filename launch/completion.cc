#include "launch/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string_view>

#include "launch/cli.h"
#include "launch/commands.h"
#include "launch/help.h"
#include "model/graph.h"
#include "trainer/config/config.pb.h"
#include "trainer/config/config_fields.h"
#include "trainer/config/find_config.h"
#include "trainer/report/run_records.h"

namespace trireme::cli {

// The contents of completion/trireme.bash, .zsh and .fish.
extern const std::string_view kBashCompletion;
extern const std::string_view kZshCompletion;
extern const std::string_view kFishCompletion;

namespace {

namespace fs = std::filesystem;

const CLI::Option* find_option(const CLI::App& app, const std::string& name) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional() && option->check_name(name)) return option;
  }
  return nullptr;
}

bool takes_value(const CLI::Option* option) {
  return option && option->get_items_expected_max() > 0;
}

// Returns the entries of a folder that begin with `typed`: the files that `accepts_file` accepts,
// and all folders. Folders end in "/", except those for which `is_complete` is true.
template <class AcceptsFile, class IsComplete>
std::vector<Completion> entries(const std::string& typed, AcceptsFile accepts_file,
                                IsComplete is_complete) {
  const std::string folder = typed.substr(0, typed.rfind('/') + 1);
  const std::string begin = typed.substr(folder.size());
  const char* home = std::getenv("HOME");
  fs::path at = folder.empty() ? "." : folder;
  if (folder.starts_with("~/") && home) at = fs::path(home) / folder.substr(2);
  std::vector<Completion> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(at, none)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(begin) || (name[0] == '.' && begin.empty())) continue;
    if (entry.is_directory(none)) {
      const bool is_run = is_complete(entry.path());
      found.push_back({folder + name + (is_run ? "" : "/"), is_run ? "run" : ""});
    } else if (accepts_file(name)) {
      found.push_back({folder + name, ""});
    }
  }
  return found;
}

std::vector<Completion> files(const std::string& typed, std::string_view suffix) {
  return entries(
      typed, [&](const std::string& name) { return name.ends_with(suffix); },
      [](const fs::path&) { return false; });
}

std::vector<Completion> folders(const std::string& typed, bool runs) {
  return entries(
      typed, [](const std::string&) { return false; },
      [&](const fs::path& path) { return runs && train::is_run_folder(path); });
}

std::vector<Completion> configs(const std::string& typed) {
  std::vector<Completion> found = files(typed, ".txtpb");
  for (const std::string& name : train::installed_configs()) found.push_back({name, "installed"});
  return found;
}

std::vector<Completion> networks() {
  std::vector<Completion> found;
  for (const std::string& name : model::zoo_names())
    found.push_back({name, model::zoo_defaults(name).description});
  return found;
}

bool is_literal(const std::string& kind) {
  return !kind.empty() && std::ranges::all_of(kind, [](char c) { return c >= 'a' && c <= 'z'; });
}

std::vector<Completion> values_of_kind(const std::string& kind, const std::string& typed) {
  std::vector<Completion> found;
  if (kind == "FIELD=VALUE") {
    if (const std::string zoo = "model.zoo.name="; typed.starts_with(zoo)) {
      found = networks();
      for (Completion& one : found) one.word.insert(0, zoo);
    }
    for (const std::string& word : train::complete_assignment(RunConfig::descriptor(), typed)) {
      found.push_back({word, ""});
    }
    return found;
  }
  if (is_literal(kind)) return {{kind, ""}};
  if (kind == "CONFIG") return configs(typed);
  if (kind == "ZOO") return networks();
  if (kind.starts_with("RUN")) return folders(typed, true);
  if (kind == "DIR") return folders(typed, false);
  const bool is_file = kind == "PATH" || kind == "INPUT" || kind == "OUT" || kind == "TEXT";
  return is_file ? files(typed, "") : found;
}

// The placeholder of the value in help, such as "CONFIG|ZOO", determines its completions.
std::vector<Completion> values_of(const CLI::Option& option, const std::string& typed) {
  std::vector<Completion> found;
  for (const std::string& kind : CLI::detail::split(value_name(option), '|')) {
    std::ranges::move(values_of_kind(kind, typed), std::back_inserter(found));
  }
  return found;
}

std::vector<Completion> commands(const CLI::App& app) {
  std::vector<Completion> found;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_group().empty()) continue;
    found.push_back({command->get_name(), first_line(command->get_description())});
  }
  return found;
}

std::vector<Completion> options(const CLI::App& app) {
  std::vector<Completion> found;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) {
      found.push_back({"--" + name, first_line(option->get_description())});
    }
  }
  return found;
}

// The state of the command line before the word being typed.
struct Place {
  const CLI::App* app = nullptr;
  const CLI::Option* waiting = nullptr;  // an option whose value comes next
  size_t positionals = 0;
  const CLI::App* named = nullptr;  // the command that the positionals name, as for `help`
};

const CLI::App* find_command(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

Place follow(const CLI::App& app, const std::vector<std::string>& words) {
  Place place{&app};
  place.named = &app;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (place.waiting) {
      place.waiting = nullptr;
    } else if (word.starts_with("-")) {
      const CLI::Option* option = find_option(*place.app, word);
      if (takes_value(option)) place.waiting = option;
    } else if (!place.app->get_subcommands({}).empty()) {
      if (const CLI::App* command = find_command(*place.app, word)) place.app = command;
    } else {
      ++place.positionals;
      if (place.named) place.named = find_command(*place.named, word);
    }
  }
  return place;
}

std::vector<Completion> candidates(const Place& place, const std::string& typed) {
  if (place.waiting) return values_of(*place.waiting, typed);
  const size_t equals = typed.find('=');
  if (typed.starts_with("--") && equals != std::string::npos) {
    const CLI::Option* option = find_option(*place.app, typed.substr(0, equals));
    if (!takes_value(option)) return {};
    auto found = values_of(*option, typed.substr(equals + 1));
    for (Completion& one : found) one.word.insert(0, typed.substr(0, equals + 1));
    return found;
  }
  if (typed.starts_with("-")) return options(*place.app);
  if (!place.app->get_subcommands({}).empty()) return commands(*place.app);
  const auto positionals =
      place.app->get_options([](const CLI::Option* one) { return one->get_positional(); });
  if (positionals.empty()) return {};
  const CLI::Option& last = *positionals.back();
  if (value_name(last) == "COMMAND") {
    return place.named ? commands(*place.named) : std::vector<Completion>{};
  }
  if (place.positionals < positionals.size()) {
    return values_of(*positionals[place.positionals], typed);
  }
  return last.get_expected_max() > 1 ? values_of(last, typed) : std::vector<Completion>{};
}

}  // namespace

std::vector<Completion> complete(const CLI::App& app, const std::vector<std::string>& words) {
  const std::string typed = words.empty() ? "" : words.back();
  std::vector<Completion> found = candidates(follow(app, words), typed);
  std::erase_if(found, [&](const Completion& one) { return !one.word.starts_with(typed); });
  std::ranges::sort(found, {}, &Completion::word);
  const auto same = [](const Completion& a, const Completion& b) { return a.word == b.word; };
  found.erase(std::unique(found.begin(), found.end(), same), found.end());
  // Drops "folder/" if the same folder is also offered as a run.
  std::erase_if(found, [&, all = found](const Completion& one) {
    if (!one.word.ends_with('/')) return false;
    const std::string without = one.word.substr(0, one.word.size() - 1);
    return std::ranges::find(all, without, &Completion::word) != all.end();
  });
  return found;
}

void add_completion(ArgumentParser app, Command& chosen) {
  const auto print = [&chosen](std::string text) {
    chosen.run = [text = std::move(text)](comm::Communicator& communicator) {
      if (communicator.rank() == 0) std::fputs(text.c_str(), stdout);
      return 0;
    };
  };
  ArgumentParser command = app.add_command("completion", "Print the completion script for a shell");
  command.require_command();

  for (const auto& [shell, script] :
       {std::pair("bash", kBashCompletion), {"zsh", kZshCompletion}, {"fish", kFishCompletion}}) {
    command.add_command(shell, fmt::format("The script for {}", shell))
        .on_chosen([print, text = script] { print(std::string(text)); });
  }
  command.epilog(R"(Examples:
  source <(trireme completion bash)
  source <(trireme completion zsh)
  trireme completion fish | source

An installed trireme includes these scripts, and shells find them there. They
also complete after mpirun, mpiexec, srun and trireme-supervise.
)");
  auto words = std::make_shared<std::vector<std::string>>();
  ArgumentParser query = command.add_command("words", "Print completions; used by the scripts");
  query.group("");  // hidden
  query.add_option("WORD", *words, "The words after the program's name, the last one incomplete");
  query.on_chosen([app, words, print] {
    std::string text;
    for (const Completion& one : complete(app.app(), *words)) {
      text += one.word + (one.description.empty() ? "" : "\t" + one.description) + "\n";
    }
    print(text);
  });
}

}  // namespace trireme::cli
