#include "model/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "model/model.pb.h"
#include "model/passes/passes.h"
#include "model/size.h"

namespace trireme::model {
namespace {

constexpr const char* kInputName = "input";
// Some passes over the graph take time in proportion to the square of its layers.
constexpr int kMaxLayers = 20000;

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

// Throws Error unless tied parameters have the shape of the ones that they are tied to.
void check_tied(const Node& node, const Names& names, const Graph& graph) {
  for (const Signature::Parameter& parameter : node.signature.parameters) {
    if (parameter.tied_to.empty()) continue;
    const int found = names.find(node.name, parameter.tied_to);
    if (found < 0) throw Error("tied_to: the input has no parameters");
    if (!graph.nodes[found].layer->reads_tokens()) {
      throw Error(fmt::format("tied_to: layer '{}' is not an embedding", parameter.tied_to));
    }
    const Shape& table = graph.nodes[found].signature.parameters[0].shape;
    if (!(table == parameter.shape)) {
      throw Error(
          fmt::format("tied_to: requires a weight of shape {}, but that of layer '{}' is {}",
                      parameter.shape.to_string(), parameter.tied_to, table.to_string()));
    }
  }
}

// Throws Error unless embeddings, and nothing else, read the tokens of the data.
void check_tokens(const Node& node, const ModelInput& input) {
  const bool has_tokens = input.input.dtype == DType::kI32;
  for (const int from : node.inputs) {
    const bool reads_tokens = from < 0 && has_tokens;
    if (reads_tokens && !node.layer->reads_tokens()) {
      throw Error("reads tokens; put an embedding layer before it");
    }
    if (!reads_tokens && node.layer->reads_tokens()) {
      throw Error(from < 0 ? "requires tokens, but the samples are " + input.input.to_string()
                           : "requires tokens, so it must read the input of the network");
    }
  }
}

// Throws Error unless the tokens that the layer's fields name are in the vocabulary, and there is
// one for each of the rows that it reads.
void check_token_fields(const Node& node, int64_t rows, const ModelInput& input) {
  for (const auto& [name, token] : node.layer->token_fields()) {
    if (!token) continue;
    const Shape& shape = input.input.shape;
    if (input.input.dtype != DType::kI32) {
      throw Error(fmt::format("{}: requires a network that reads tokens, but the samples are {}",
                              name, input.input.to_string()));
    }
    if (rows != shape[0]) {
      throw Error(fmt::format("{}: requires one row for each of the {} tokens, but there are {}",
                              name, shape[0], rows));
    }
    if (*token < 0 || *token >= input.vocabulary()) {
      throw Error(fmt::format("{}: {} is not in the vocabulary of the data, [0, {})", name, *token,
                              input.vocabulary()));
    }
  }
}

// Makes the parameter one of the layer that `owner` names. Throws Error unless that is an earlier
// layer of the same kind with such a parameter of the same shape.
void share(Node& node, const char* name, const std::string& owner, const Names& names,
           const Graph& graph) {
  const auto own = std::ranges::find(node.signature.parameters, name, &Signature::Parameter::name);
  if (own == node.signature.parameters.end()) {
    throw Error(fmt::format("shared.{0}: the layer has no {0}", name));
  }
  const int found = names.find(node.name, owner);
  if (found < 0) throw Error(fmt::format("shared.{}: the input has no parameters", name));
  const Node& other = graph.nodes[found];
  const auto& theirs = other.signature.parameters;
  const auto first = std::ranges::find(theirs, name, &Signature::Parameter::name);
  if (other.layer->kind() != node.layer->kind() || first == theirs.end() ||
      first->shape != own->shape || first->frozen != own->frozen) {
    throw Error(fmt::format(
        "shared.{0}: requires a layer of the same kind with a {0} of shape {1}, "
        "but layer '{2}' ({3}) {4}",
        name, own->shape.to_string(), owner, other.layer->kind(),
        first == theirs.end() ? "has none" : "has one of shape " + first->shape.to_string()));
  }
  own->tied_to = first->tied_to.empty() ? other.name : first->tied_to;
}

Node make_node(const LayerConfig& config, int place, const Names& names, const Graph& graph) {
  Node node;
  node.name = config.name();
  if (printable(node.name, node.name.size()) != node.name) {
    refuse(printable(node.name), "", "the name has control characters or is not UTF-8");
  }
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
    check_tokens(node, graph.input);
    node.signature = node.layer->infer(shapes);
    check_tied(node, names, graph);
    if (config.shared().has_weight()) {
      share(node, "weight", config.shared().weight(), names, graph);
    }
    if (config.shared().has_bias()) share(node, "bias", config.shared().bias(), names, graph);
    check_token_fields(node, shapes.empty() || shapes[0].rank() == 0 ? 0 : shapes[0][0],
                       graph.input);
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
}

// Throws ConfigError unless the logits fit the labels.
void check_logits(const Node& loss, const Shape& logits, const ModelInput& input, bool soft) {
  const int last = logits.rank() - 1;
  const int64_t positions = last == 0 ? 1 : logits[0];
  if (!soft && (last != input.target.shape.rank() || positions != input.labels_per_sample())) {
    refuse(loss.name, loss.layer->kind(),
           fmt::format("reads {}, but a sample has {} labels", logits.to_string(),
                       input.labels_per_sample()));
  }
  if (logits[last] < input.classes || (soft && logits[last] != input.classes)) {
    refuse(
        loss.name, loss.layer->kind(),
        fmt::format("reads {} logits, but the data has {} classes", logits[last], input.classes));
  }
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
    check_logits(loss, read, graph.input, soft);
  } else if (labels || !(read == graph.input.target.shape)) {
    refuse(loss.name, loss.layer->kind(),
           labels ? std::string("requires numbers as targets, but the data has class labels")
                  : fmt::format("reads {}, but a target is {}", read.to_string(),
                                graph.input.target.shape.to_string()));
  }
}

// Sets the vocabulary of embeddings, if unset, to that of the data. Throws ConfigError if one is
// smaller.
void complete_embeddings(NetworkConfig& network, const ModelInput& input) {
  for (LayerConfig& layer : *network.mutable_layer()) {
    if (!layer.has_embedding()) continue;
    EmbeddingConfig& embedding = *layer.mutable_embedding();
    if (!embedding.has_vocab_size()) embedding.set_vocab_size(input.vocabulary());
    if (embedding.vocab_size() < input.vocabulary()) {
      refuse(layer.name(), "embedding",
             fmt::format("embedding.vocab_size: {} is less than the vocabulary of the data, {}",
                         embedding.vocab_size(), input.vocabulary()));
    }
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

std::string parameter_name(const Node& node, const Signature::Parameter& parameter) {
  return fmt::format("{}.{}", parameter.tied_to.empty() ? node.name : parameter.tied_to,
                     parameter.name);
}

NetworkConfig network_of(const ModelConfig& config, const ModelInput& input) {
  if (!config.has_network()) return zoo_network(config, input);
  NetworkConfig network = config.network();
  complete_embeddings(network, input);
  complete_head(network, input);
  return network;
}

Graph declare_graph(const NetworkConfig& network, const ModelInput& input) {
  check_input(input.input);
  if (network.layer().empty()) {
    throw ConfigError("model.network.layer", "is empty; list the layers, the last one a loss");
  }
  if (network.layer_size() > kMaxLayers) {
    throw ConfigError("model.network.layer", fmt::format("has {} layers; at most {} are supported",
                                                         network.layer_size(), kMaxLayers));
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

bool is_stateful(const ModelConfig& config) {
  return config.zoo().stateful() ||
         std::ranges::any_of(config.network().layer(), [](const LayerConfig& layer) {
           return layer.lstm().stateful() || layer.gru().stateful();
         });
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
