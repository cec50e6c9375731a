// Opens the samples and builds the network of a configuration.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/sampler.h"
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

// Returns a text if a layer skips another token than that which labeled texts are padded with, so
// that it reads their padding; "" otherwise.
std::string padding_problem(const Config& config, const model::Graph& graph,
                            const data::Dataset& texts);

// Returns the same network for each length of batches that is less than that of the training
// samples, in ascending order; none unless `order` has buckets. Throws ConfigError
// ("data.length_buckets") if what the network computes would depend on the amount of padding.
std::vector<model::Graph> build_shorter_networks(const Config& config, const model::Graph& whole,
                                                 const data::OrderOptions& order,
                                                 const data::Dataset& training);

}  // namespace trireme::train
