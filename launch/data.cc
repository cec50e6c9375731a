// `trireme data`: commands about the samples of a run.
#include "launch/data.h"

#include <CLI/CLI.hpp>
#include <map>

#include "launch/cli.h"
#include "launch/options.h"

namespace trireme {

void DataOptions::add_to(CLI::App& app) {
  add_option(app, "CONFIG", path, "Configuration (*.txtpb)")->required();
  add_set_option(app, assignments);
  const std::map<std::string, Part> parts = {{"train", Part::kTraining},
                                             {"eval", Part::kEvaluation}};
  app.add_option("--part", part, "Which samples; unset: train")
      ->transform(CLI::CheckedTransformer(parts).description(""))
      ->type_name("{train,eval}");
}

std::string class_text(const std::vector<std::string>& names, int64_t number) {
  const auto i = static_cast<size_t>(number);
  return i < names.size() && !names[i].empty() ? names[i] : std::to_string(number);
}

void add_data(CLI::App& app, Command& chosen) {
  CLI::App& data = add_command(app, "data", "Show, measure or pack the samples of a run");
  data.require_subcommand(1);
  data.footer("See `trireme help data show`, and so on.\n");
  add_data_pack(data, chosen);
  add_data_show(data, chosen);
  add_data_stats(data, chosen);
}

}  // namespace trireme
