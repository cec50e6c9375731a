#include "trainer/config/inputs.h"

#include "trainer/config/parameter_groups.h"

namespace trireme::train {

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
  return {spec.input, spec.target, spec.classes, spec.scale, spec.mean, spec.stddev};
}

model::Graph build_network(const Config& config, const data::SampleSpec& spec) {
  try {
    model::Graph graph = model::build_graph(config.run.model(), model_input(spec));
    ParameterGroups(config.run.optimizer()).check(graph);
    return graph;
  } catch (const ConfigError& error) {
    throw config.located(error);
  }
}

}  // namespace trireme::train
