// `trireme data`: commands for the samples of a run.
#include "launch/data.h"

#include "launch/cli.h"
#include "launch/options.h"

namespace trireme::cli {

void DataOptions::add_to(ArgumentParser app) {
  app.add_option("CONFIG", path, "Configuration file (*.txtpb)").required();
  add_set_option(app, assignments);
  app.add_choice("--part", part,
                 {{"train", data::Part::kTraining}, {"eval", data::Part::kEvaluation}},
                 "Use the training or the evaluation samples (default: train)");
}

std::string class_text(const std::vector<std::string>& names, int64_t number) {
  const size_t i = number;
  return i < names.size() && !names[i].empty() ? names[i] : std::to_string(number);
}

void add_data(ArgumentParser app, Command& chosen) {
  ArgumentParser data = app.add_command("data", "Show, analyze or pack the samples of a run");
  data.require_command();
  data.epilog("`trireme help data show` describes `data show`, and so on.\n");
  add_data_pack(data, chosen);
  add_data_show(data, chosen);
  add_data_stats(data, chosen);
  add_data_tokenizer(data, chosen);
}

}  // namespace trireme::cli
