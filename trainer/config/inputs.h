// Opens the samples and builds the network of a configuration.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "data/dataset.h"
#include "model/graph.h"
#include "trainer/config/config.h"

namespace trireme::train {

// Opens the samples. ConfigErrors name the location in the configuration file. `progress` and
// `columns` are those of data::OpenOptions.
std::unique_ptr<data::Dataset> open_data(const Config& config, data::Part part,
                                         const std::function<void(std::string_view)>& progress = {},
                                         const data::TableColumns& columns = {});
// Returns the description of these samples as the network's input.
model::ModelInput model_input(const data::SampleSpec& spec);
// Builds the network and checks that optimizer.group matches it. ConfigErrors name the location in
// the configuration file.
model::Graph build_network(const Config& config, const data::SampleSpec& spec);

}  // namespace trireme::train
