// What tests save and load: arrays without a network, and the description of data.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"

namespace trireme::train {

inline RunData some_data() {
  return {.training = {1797, 10, {0x0123456789abcdef, 0xffffffffffffffff}, {"a", "b"}},
          .evaluation = {450, 10, {1, 2}}};
}

// Two parameters with padding between them, and a running statistic.
struct SmallModel {
  SmallModel()
      : device(create_cpu_device(1)),
        backend(ops::create_cpu_backend(*device)),
        values(48),
        velocity(48),
        running(16) {
    parameters.all.push_back({.name = "fc.weight",
                              .spec = {DType::kF32, Shape{2, 3}, Layout::row_major()},
                              .init = {},
                              .decays = true,
                              .begin = 16,
                              .end = 22});
    parameters.all.push_back({.name = "fc.bias",
                              .spec = {DType::kF32, Shape{2}, Layout::row_major()},
                              .init = {},
                              .decays = false,
                              .begin = 32,
                              .end = 34});
    parameters.trained_elements = parameters.elements = 48;
    parameters.running_stats.push_back({.name = "bn.running_mean",
                                        .spec = {DType::kF32, Shape{3}, Layout::row_major()},
                                        .initial = 0,
                                        .begin = 0});
    parameters.updated_stat_elements = parameters.running_stat_elements = 16;
  }

  StateArrays arrays(const std::string& optimizer_array = "velocity") {
    StateArrays state(parameters, *backend,
                      {.parameters = values.data(), .running_stats = running.data()});
    state.add_optimizer_array(parameters, optimizer_array, velocity.data());
    return state;
  }

  // Sets all values to numbers that depend on the step.
  void fill(int64_t step) {
    for (const model::Parameter& p : parameters.all) {
      for (int64_t i = p.begin; i < p.end; ++i) {
        values[static_cast<size_t>(i)] = static_cast<float>(1000 * step + i);
        velocity[static_cast<size_t>(i)] = static_cast<float>(1000 * step - i);
      }
    }
    for (size_t i = 0; i < 3; ++i) running[i] = static_cast<float>(step) + 0.5f;
  }

  void clear() {
    for (auto* array : {&values, &velocity, &running}) array->assign(array->size(), 0.0f);
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<ops::Backend> backend;
  model::Parameters parameters;
  std::vector<float> values;
  std::vector<float> velocity;
  std::vector<float> running;
};

}  // namespace trireme::train
