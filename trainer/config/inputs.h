// Opens the samples and builds the network of a configuration.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

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

// Returns the same network for samples of each of these lengths, in tokens, which are less than that
// of `whole`. `padding` is the token that samples are padded with. Throws ConfigError
// ("data.length_buckets") if what the network computes would depend on the amount of padding.
std::vector<model::Graph> build_shorter_networks(const Config& config, const model::Graph& whole,
                                                 std::span<const int64_t> lengths, int32_t padding);

}  // namespace trireme::train
