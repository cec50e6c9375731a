// `trireme data`: commands about the samples of a run.
#include "launch/data.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <utility>

#include "comm/control.h"

namespace trireme {

std::function<int(Communicator&)> on_one_rank(std::function<int()> work) {
  return [work = std::move(work)](Communicator& communicator) {
    if (communicator.size() > 1) {
      throw AgreedError(fmt::format("trireme data runs on one rank, with all cores, not on {}; "
                                    "start it without mpirun or srun",
                                    communicator.size()),
                        ExitCode::kBadConfig, 0);
    }
    return work();
  };
}

void DataOptions::add_to(CLI::App& app) {
  app.add_option("CONFIG", path, "Configuration (*.txtpb)")->required();
  app.add_option("--set", assignments, "Set a field of the configuration, e.g. data.root=/data")
      ->type_name("FIELD=VALUE")
      ->allow_extra_args(false);
  const std::map<std::string, Part> parts = {{"train", Part::kTraining},
                                             {"eval", Part::kEvaluation}};
  app.add_option("--part", part, "train or eval: which samples; unset: train")
      ->transform(CLI::CheckedTransformer(parts).description(""))
      ->type_name("PART");
}

std::string class_text(const std::vector<std::string>& names, int64_t number) {
  const auto i = static_cast<size_t>(number);
  return i < names.size() && !names[i].empty() ? names[i] : std::to_string(number);
}

void add_data(CLI::App& app, Command& chosen) {
  CLI::App& data = *app.add_subcommand("data", "Show, measure or pack the samples of a run");
  data.require_subcommand(1);
  add_data_pack(data, chosen);
  add_data_show(data, chosen);
  add_data_stats(data, chosen);
}

}  // namespace trireme
