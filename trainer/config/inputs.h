// What a configuration names, opened and built: its samples and its network.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "data/dataset.h"
#include "model/graph.h"
#include "trainer/config/config.h"

namespace trireme::train {

// The samples as configured, with errors placed in the configuration file. `progress` and `columns`
// as in OpenOptions.
std::unique_ptr<data::Dataset> open_data(const Config& config, data::Part part,
                                         const std::function<void(std::string_view)>& progress = {},
                                         const data::TableColumns& columns = {});
// What the network reads when it reads these samples.
model::ModelInput model_input(const data::SampleSpec& spec);
// The network as configured, with errors placed in the configuration file.
model::Graph build_network(const Config& config, const data::SampleSpec& spec);

}  // namespace trireme::train
