#include "model/graph.h"

#include <fmt/format.h>

#include <map>

#include "core/error.h"
#include "core/text.h"
#include "model/model.pb.h"
#include "model/passes/passes.h"
#include "model/size.h"

namespace trireme::model {
namespace {

constexpr const char* kInputName = "input";

[[noreturn]] void refuse(const std::string& layer, std::string_view kind, const std::string& why) {
  throw ConfigError("model", kind.empty() ? fmt::format("layer '{}': {}", layer, why)
                                          : fmt::format("layer '{}' ({}): {}", layer, kind, why));
}

// Finds layers by name.
class Names {
 public:
  void add(const std::string& name, int node) {
    if (name == kInputName || !nodes_.emplace(name, node).second) {
      refuse(name, "", "the name is used already; each layer needs a unique name");
    }
  }
  int find(const std::string& reader, const std::string& name) const {
    if (name == kInputName) return -1;
    const auto found = nodes_.find(name);
    if (found != nodes_.end()) return found->second;
    std::vector<std::string> known{kInputName};
    for (const auto& [other, node] : nodes_) known.push_back(other);
    refuse(reader, "",
           fmt::format("input: no earlier layer is named '{}'{}", name, did_you_mean(name, known)));
  }

 private:
  std::map<std::string, int> nodes_;
};

Node make_node(const LayerConfig& config, int place, const Names& names, const Graph& graph) {
  Node node;
  node.name = config.name();
  try {
    node.layer = make_layer(config);
    if (node.name.empty()) node.name = fmt::format("{}_{}", node.layer->kind(), place);
    for (const std::string& input : config.input()) {
      node.inputs.push_back(names.find(node.name, input));
    }
    if (config.input().empty()) node.inputs = {place - 1};
    std::vector<Shape> shapes;
    for (int input : node.inputs) {
      if (input >= 0 && graph.nodes[input].signature.output.rank() == 0) {
        throw Error("reads a loss, which has no output; the loss must come last");
      }
      shapes.push_back(input < 0 ? graph.input.input.shape : graph.nodes[input].signature.output);
    }
    node.signature = node.layer->infer(shapes);
    for (const auto& parameter : node.signature.parameters) {
      require_size(parameter.name, parameter.shape);
    }
    require_size("the output", node.signature.output);
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& error) {
    refuse(node.name.empty() ? fmt::format("#{}", place + 1) : node.name,
           node.layer ? node.layer->kind() : "", error.what());
  }
  return node;
}

void check_input(const TensorSpec& input) {
  try {
    require_size("a sample", input.shape);
  } catch (const Error& error) {
    throw ConfigError("data", error.what());
  }
  if (input.dtype != DType::kI32) return;
  throw ConfigError("model",
                    fmt::format("the samples are tokens, {}, which need an embedding layer; "
                                "there is none yet",
                                input.to_string()));
}

// Throws ConfigError unless the last layer is a loss that fits the targets of the data.
void check_loss(const Graph& graph, const LayerConfig& config) {
  const Node& loss = graph.nodes.back();
  if (loss.signature.output.rank() != 0) {
    refuse(loss.name, loss.layer->kind(),
           "the last layer must be a loss: softmax_cross_entropy or mean_squared_error");
  }
  const Shape read =
      loss.inputs[0] < 0 ? graph.input.input.shape : graph.nodes[loss.inputs[0]].signature.output;
  const bool soft = graph.input.target.dtype == DType::kF32 && graph.input.classes > 0;
  const bool labels = graph.input.target.dtype == DType::kI32 || soft;
  if (config.has_softmax_cross_entropy()) {
    if (!labels)
      refuse(loss.name, loss.layer->kind(),
             "requires class labels, but the data has numbers as targets");
    if (read[0] < graph.input.classes || (soft && read[0] != graph.input.classes)) {
      refuse(loss.name, loss.layer->kind(),
             fmt::format("reads {} logits, but the data has {} classes", read[0],
                         graph.input.classes));
    }
  } else if (labels || !(read == graph.input.target.shape)) {
    refuse(loss.name, loss.layer->kind(),
           labels ? std::string("requires numbers as targets, but the data has class labels")
                  : fmt::format("reads {}, but a target is {}", read.to_string(),
                                graph.input.target.shape.to_string()));
  }
}

// Sets the units of the dense layer that computes the logits, if unset, to the number of classes.
void complete_head(NetworkConfig& network, const ModelInput& input) {
  if (input.classes < 1 || network.layer_size() < 2) return;
  const LayerConfig& loss = network.layer(network.layer_size() - 1);
  if (!loss.has_softmax_cross_entropy()) return;
  for (int i = network.layer_size() - 2; i >= 0; --i) {
    LayerConfig& layer = *network.mutable_layer(i);
    const bool read =
        loss.input().empty() ? i == network.layer_size() - 2 : layer.name() == loss.input(0);
    if (!read) continue;
    if (layer.has_dense() && !layer.dense().has_units()) {
      layer.mutable_dense()->set_units(input.classes);
    }
    return;
  }
}

}  // namespace

NetworkConfig network_of(const ModelConfig& config, const ModelInput& input) {
  if (!config.has_network()) return zoo_network(config, input);
  NetworkConfig network = config.network();
  complete_head(network, input);
  return network;
}

Graph declare_graph(const NetworkConfig& network, const ModelInput& input) {
  check_input(input.input);
  if (network.layer().empty()) {
    throw ConfigError("model.network.layer", "is empty; list the layers, the last one a loss");
  }
  Graph graph{.name = network.name(), .input = input, .nodes = {}};
  Names names;
  for (const LayerConfig& layer : network.layer()) {
    const int place = static_cast<int>(graph.nodes.size());
    graph.nodes.push_back(make_node(layer, place, names, graph));
    names.add(graph.nodes.back().name, place);
  }
  check_loss(graph, network.layer(network.layer_size() - 1));
  return graph;
}

Graph build_graph(const ModelConfig& config, const ModelInput& input) {
  Graph graph = declare_graph(network_of(config, input), input);
  elide_identities(graph);
  remove_unused(graph);
  fuse(graph);
  freeze(graph, std::vector<std::string>(config.freeze().begin(), config.freeze().end()));
  return graph;
}

}  // namespace trireme::model
