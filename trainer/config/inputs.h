// What a configuration names, opened and built: its samples and its network.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "data/dataset.h"
#include "model/graph.h"
#include "trainer/config/config.h"

namespace trireme {

// The samples as configured, with errors placed in the configuration file. `progress` and `columns`
// as in OpenOptions.
std::unique_ptr<Dataset> open_data(const Config& config, Part part,
                                   const std::function<void(std::string_view)>& progress = {},
                                   const TableColumns& columns = {});
// What the network reads when it reads these samples.
ModelInput model_input(const SampleSpec& spec);
// The network as configured, with errors placed in the configuration file.
Graph build_network(const Config& config, const SampleSpec& spec);

}  // namespace trireme
