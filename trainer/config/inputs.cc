#include "trainer/config/inputs.h"

namespace trireme {

std::unique_ptr<Dataset> open_data(const Config& config, Part part,
                                   const std::function<void(std::string_view)>& progress,
                                   const TableColumns& columns) {
  try {
    return open_dataset(config.run.data(), part,
                        {.seed = config.run.seed(), .progress = progress, .columns = columns});
  } catch (const ConfigError& error) {
    throw config.located(error);
  }
}

ModelInput model_input(const SampleSpec& spec) {
  return {spec.input, spec.target, spec.classes, spec.scale, spec.mean, spec.deviation};
}

Graph build_network(const Config& config, const SampleSpec& spec) {
  try {
    return build_graph(config.run.model(), model_input(spec));
  } catch (const ConfigError& error) {
    throw config.located(error);
  }
}

}  // namespace trireme
