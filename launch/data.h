// Declarations shared by the commands of `trireme data`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "launch/commands.h"
#include "trainer/config/config.h"

namespace trireme::cli {

void add_data_pack(ArgumentParser data, Command& chosen);
void add_data_show(ArgumentParser data, Command& chosen);
void add_data_stats(ArgumentParser data, Command& chosen);
void add_data_tokenizer(ArgumentParser data, Command& chosen);

// The arguments CONFIG, --set and --part.
struct DataOptions {
  std::string path;
  std::vector<std::string> assignments;
  data::Part part = data::Part::kTraining;

  void add_to(ArgumentParser app);
  train::Config load() const { return train::load_config(path, assignments); }
};

// Returns the name of the class, or its number if it has no name.
std::string class_text(const std::vector<std::string>& names, int64_t number);

}  // namespace trireme::cli
