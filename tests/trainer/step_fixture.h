// A Step with everything it needs, for tests.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "data/loader.h"
#include "trainer/config/device.h"
#include "trainer/config/inputs.h"
#include "trainer/config/loading.h"
#include "trainer/step/step.h"

namespace trireme::train {

inline const char* const kStepConfig = R"(
model { network {
  layer { conv2d { channels: 8 kernel: 3 padding: 1 } }
  layer { relu {} }
  layer { flatten {} }
  layer { dense { units: 10 } }
  layer { softmax_cross_entropy {} }
} }
data { synthetic { shape: [3, 8, 8] count: 22 eval_count: 10 } }
batch { global: 22 }
train { epochs: 1 }
schedule { learning_rate: 1 }
)";

// Creates a Step from a configuration, on all ranks, and a loader of its training samples.
class StepFixture {
 public:
  StepFixture(comm::Communicator& communicator, const std::string& config,
              const std::vector<std::string>& assignments)
      : config_(parse_config(config, "test", assignments)),
        device_(create_device(config_, communicator)),
        backend_(create_backend(config_, *device_)),
        dataset_(open_data(config_, data::Part::kTraining)),
        graph_(build_network(config_, dataset_->spec())),
        step_(config_, graph_, *backend_, communicator) {
    data::LoaderOptions options;
    options.order = training_order(config_, *dataset_);
    options.global_batch = step_.plan().global;
    options.capacity = step_.plan().capacity;
    options.rank = communicator.rank();
    options.ranks = communicator.size();
    loader_ = std::make_unique<data::Loader>(*dataset_, *device_, options);
    loader_->start(0, 0);
    step_.initialize();
  }

  Step& step() { return step_; }
  const Config& config() const { return config_; }
  const model::Graph& graph() const { return graph_; }
  const data::Batch& next() { return loader_->next(); }

  // Runs one step to its end.
  StepResult run(int64_t step, float learning_rate, bool stop_requested = false) {
    const auto result = step_.run(next(), step, learning_rate, stop_requested);
    const auto last = step_.finish();
    return result ? *result : *last;
  }

  // Returns all parameters in canonical layout.
  std::vector<double> values() {
    std::vector<double> all;
    for (const StateArrays::Tensor& parameter : step_.state().parameters().tensors) {
      std::vector<float> values(static_cast<size_t>(parameter.spec.shape.elements()));
      step_.state().get(parameter, values);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  // Returns the length of one step of plain gradient descent with learning rate 1: the gradient's
  // norm.
  double step_length() {
    const std::vector<double> before = values();
    run(0, 1);
    const std::vector<double> after = values();
    double sum = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      sum += (after[i] - before[i]) * (after[i] - before[i]);
    }
    return std::sqrt(sum);
  }

 private:
  Config config_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<ops::Backend> backend_;
  std::unique_ptr<data::Dataset> dataset_;
  model::Graph graph_;
  Step step_;
  std::unique_ptr<data::Loader> loader_;
};

}  // namespace trireme::train
