// Folds batch norms into convolutions. In inference, batch norm is a scale and a shift of each
// channel, which can be applied to the weights and bias of the preceding convolution (Jacob et al.,
// arXiv:1712.05877, section 3.2).
#include <cmath>
#include <set>

#include "model/graph.h"
#include "model/passes/passes.h"

namespace trireme::model {
namespace {

// A batch norm in inference: x * scale + shift for each channel.
struct ChannelMap {
  std::vector<double> scale, shift;
};

ChannelMap map_of(const Node& norm, float epsilon, const Weights& weights) {
  const auto values = [&](const char* name) -> const std::vector<float>& {
    return weights.at(norm.name + name).values;
  };
  const std::vector<float>&weight = values(".weight"), &bias = values(".bias"),
        &mean = values(".running_mean"), &variance = values(".running_var");
  ChannelMap map;
  for (size_t c = 0; c < weight.size(); ++c) {
    const double scale = double{weight[c]} / std::sqrt(double{variance[c]} + double{epsilon});
    map.scale.push_back(scale);
    map.shift.push_back(double{bias[c]} - double{mean[c]} * scale);
  }
  return map;
}

void fold_values(const Node& conv, const Node& norm, float epsilon, Weights& weights) {
  const ChannelMap map = map_of(norm, epsilon, weights);
  Weight& weight = weights.at(conv.name + ".weight");
  Weight& bias = weights[conv.name + ".bias"];  // added, as zeros, if the convolution has none
  const size_t channels = map.scale.size();
  bias.shape = Shape{static_cast<int64_t>(channels)};
  bias.values.resize(channels);
  const size_t each = weight.values.size() / channels;
  for (size_t c = 0; c < channels; ++c) {
    for (size_t i = c * each; i < (c + 1) * each; ++i) {
      weight.values[i] = static_cast<float>(double{weight.values[i]} * map.scale[c]);
    }
    bias.values[c] = static_cast<float>(double{bias.values[c]} * map.scale[c] + map.shift[c]);
  }
  for (const char* name : {".weight", ".bias", ".running_mean", ".running_var"}) {
    weights.erase(norm.name + name);
  }
}

// Returns the names of the layers that share parameters with others.
std::set<std::string> sharing_layers(const Graph& graph) {
  std::set<std::string> names;
  for (const Node& node : graph.nodes) {
    for (const Signature::Parameter& parameter : node.signature.parameters) {
      if (parameter.tied_to.empty()) continue;
      names.insert(node.name);
      names.insert(parameter.tied_to);
    }
  }
  return names;
}

}  // namespace

void fold_batch_norms(Graph& graph, Weights& weights) {
  const std::set<std::string> shared = sharing_layers(graph);
  const std::vector<std::vector<int>> read_by = readers(graph);
  std::vector<int> replacements = all_places(graph);
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    if (read_by[n].size() != 1) continue;
    Node& conv = graph.nodes[n];
    const Node& norm = graph.nodes[read_by[n][0]];
    if (shared.contains(conv.name) || shared.contains(norm.name)) continue;
    const auto scale = norm.layer->as_channel_scale();
    if (!scale || !conv.layer->fold(*scale)) continue;
    fold_values(conv, norm, scale->epsilon, weights);
    std::vector<Signature::Parameter>& parameters = conv.signature.parameters;
    if (parameters.size() == 1) {
      parameters.push_back(
          {.name = "bias", .shape = {parameters[0].shape[0]}, .init = {}, .decays = false});
    }
    replacements[read_by[n][0]] = n;
  }
  remove_nodes(graph, replacements);
}

}  // namespace trireme::model
