#include "trainer/config/class_weights.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "data/classes.h"

namespace trireme::train {
namespace {

// Returns the path of the message that has the fields; empty if the network has none.
std::string path_of(const ModelConfig& model) {
  if (model.has_zoo()) return "model.zoo";
  const int layers = model.network().layer_size();
  if (layers == 0 || !model.network().layer(layers - 1).has_softmax_cross_entropy()) return "";
  return fmt::format("model.network.layer[{}].softmax_cross_entropy", layers - 1);
}

// Calls f with the message that has class_weights and balanced_class_weights, if there is one.
template <class F>
void with_loss(ModelConfig& model, const F& f) {
  if (model.has_zoo()) {
    f(*model.mutable_zoo());
  } else if (!path_of(model).empty()) {
    NetworkConfig& network = *model.mutable_network();
    f(*network.mutable_layer(network.layer_size() - 1)->mutable_softmax_cross_entropy());
  }
}

}  // namespace

std::vector<float> class_weights(const RunConfig& run) {
  ModelConfig model = run.model();
  std::vector<float> weights;
  with_loss(model, [&](const auto& loss) {
    weights.assign(loss.class_weights().begin(), loss.class_weights().end());
  });
  return weights;
}

bool reweights_loss(const RunConfig& run) {
  ModelConfig model = run.model();
  bool reweights = false;
  with_loss(model, [&](const auto& loss) {
    reweights = loss.label_smoothing() != 0 || loss.class_weights_size() > 0 ||
                loss.balanced_class_weights();
  });
  return reweights;
}

bool ignores_class(const RunConfig& run, int64_t classes) {
  const ModelConfig& model = run.model();
  const int layers = model.network().layer_size();
  if (model.has_zoo() || path_of(model).empty()) return false;
  const int32_t ignored = model.network().layer(layers - 1).softmax_cross_entropy().ignore_index();
  return ignored >= 0 && ignored < classes;
}

void balance_class_weights(Config& config, const data::Dataset& training) {
  ModelConfig& model = *config.run.mutable_model();
  const std::string field = path_of(model) + ".balanced_class_weights";
  with_loss(model, [&](auto& loss) {
    if (!loss.balanced_class_weights()) return;
    try {
      for (const float weight : data::balanced_weights(training, field)) {
        loss.add_class_weights(weight);
      }
    } catch (const ConfigError& error) {
      throw config.located(error);
    }
    loss.clear_balanced_class_weights();
  });
}

}  // namespace trireme::train
