// The configuration for benchmarks of the training step.
#pragma once

#include <fmt/format.h>

#include <string>

#include "model/graph.h"
#include "trainer/config/config.h"

namespace trireme::bench {

// Returns a configuration that trains a network of the zoo on synthetic data with momentum SGD.
inline train::Config config_of(const std::string& network, int64_t global_batch) {
  const Shape shape = model::zoo_defaults(network).input;
  std::string extents;
  for (int i = 0; i < shape.rank(); ++i) extents += fmt::format("{}{}", i ? ", " : "", shape[i]);
  return train::parse_config(fmt::format(R"(
    model {{ zoo {{ name: "{}" }} }}
    data {{ synthetic {{ shape: [{}] count: {} }} }}
    batch {{ global: {} }}
    train {{ max_steps: 1000 }}
    optimizer {{ sgd {{ momentum: 0.9 }} }}
    schedule {{ learning_rate: 0.001 }}
  )",
                                         network, extents, 4 * global_batch, global_batch),
                             "bench", {});
}

}  // namespace trireme::bench
