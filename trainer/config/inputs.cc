#include "trainer/config/inputs.h"

#include <fmt/format.h>

#include "core/error.h"
#include "trainer/config/parameter_groups.h"

namespace trireme::train {
namespace {

// Throws ConfigError if attention sees the next tokens, which are the labels.
void require_causal(const model::Graph& graph) {
  for (const model::Node& node : graph.nodes) {
    if (node.layer->kind() != "attention" || node.layer->is_causal()) continue;
    throw ConfigError("model",
                      fmt::format("layer '{}' (attention): sees the next tokens, which are the "
                                  "labels; set attention.causal, or data.mask for masked language "
                                  "modeling",
                                  node.name));
  }
}

}  // namespace

std::unique_ptr<data::Dataset> open_data(const Config& config, data::Part part,
                                         const std::function<void(std::string_view)>& progress,
                                         const data::TableColumns& columns) {
  try {
    return data::open_dataset(
        config.run.data(), part,
        {.seed = config.run.seed(), .progress = progress, .columns = columns});
  } catch (const ConfigError& error) {
    throw config.located(error);
  }
}

model::ModelInput model_input(const data::SampleSpec& spec) {
  return {spec.input, spec.target, spec.classes,   spec.scale,
          spec.mean,  spec.stddev, spec.vocab_size};
}

model::Graph build_network(const Config& config, const data::SampleSpec& spec) {
  try {
    model::Graph graph = model::build_graph(config.run.model(), model_input(spec));
    if (spec.has_token_labels() && !config.run.data().has_mask()) require_causal(graph);
    ParameterGroups(config.run.optimizer()).check(graph);
    return graph;
  } catch (const ConfigError& error) {
    throw config.located(error);
  }
}

}  // namespace trireme::train
