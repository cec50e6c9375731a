#include "model/onnx/sequence_layers.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/onnx/sequences.h"
#include "model/onnx/template.h"

namespace trireme::model::onnx {
namespace {

constexpr int64_t kMaxListed = 8;      // numbers of a constant that describes a layer
constexpr int64_t kMaxSize = 1 << 20;  // of lengths, heads and features
constexpr int64_t kMaxRecurrent = 64;  // layers
// Names of a template.
constexpr const char* kX = "x";
constexpr const char* kTokens = "tokens";
constexpr const char* kLayer = "layer";

// The options of a layer, and what its operators depend on besides them.
struct Guess {
  LayerConfig config;
  Shape output = {1, 1};                     // of a sample, as far as the template depends on it
  std::vector<std::string> parameters = {};  // of the layer
  std::optional<int64_t> length = {};        // see SequenceLayer
};

bool is_size(int64_t value) { return value >= 1 && value <= kMaxSize; }

const std::string kNoInput;
const std::string& input_of(const NodeProto* node, int i = 0) {
  return node && i < node->input_size() ? node->input(i) : kNoInput;
}

// Describes the layer whose last operator is a node, judged by a few of its operators. Each
// function returns nullopt if it is not of its kind.
class Guesser {
 public:
  Guesser(const GraphIndex& graph, const std::string& tokens) : graph_(graph), tokens_(tokens) {}

  std::optional<Guess> attention(const NodeProto& root) const;
  std::optional<Guess> embedding(const NodeProto& root) const;
  std::optional<Guess> rms_norm(const NodeProto& root) const;
  std::optional<Guess> swiglu(const NodeProto& root) const;
  std::optional<Guess> to_sequence(const NodeProto& root) const;
  std::optional<Guess> class_token(const NodeProto& root) const;
  std::optional<Guess> token_pool(const NodeProto& root) const;
  std::optional<Guess> recurrent(const NodeProto& root) const;

 private:
  const NodeProto* made_by(const std::string& value, std::string_view op) const {
    return graph_.made_by(value, op);
  }
  // Returns the first input of the node that computes the value if it is of this operator.
  const std::string& before(const std::string& value, std::string_view op) const {
    return input_of(made_by(value, op));
  }
  std::vector<int64_t> dims(const std::string& constant) const {
    const TensorProto* tensor = graph_.constant(constant);
    if (!tensor) return {};
    return {tensor->dims().begin(), tensor->dims().end()};
  }
  // Returns the values of a constant of two dimensions; none if it is not one.
  std::vector<float> table(const std::string& constant) const {
    const std::vector<int64_t> size = dims(constant);
    if (size.size() != 2 || !is_size(size[0]) || !is_size(size[1])) return {};
    return graph_.reader().floats(*graph_.constant(constant));
  }
  // Returns the constant of which the value is the first rows and columns.
  std::string whole(std::string value) const {
    while (const NodeProto* slice = made_by(value, "Slice")) value = input_of(slice);
    return value;
  }
  // Returns the token with which the network's input is compared, if the value depends on it
  // through these operators, from the value to the comparison.
  std::optional<int32_t> token(std::string value, std::initializer_list<const char*> ops) const;
  std::string read_masks(std::string scores, AttentionConfig& config, Guess& guess) const;
  bool read_rotary(const std::string& queries, AttentionConfig& config, Guess& guess) const;

  const GraphIndex& graph_;
  const std::string& tokens_;
};

std::optional<int32_t> Guesser::token(std::string value,
                                      std::initializer_list<const char*> ops) const {
  for (const char* op : ops) {
    value = before(value, op);
    if (value.empty()) return std::nullopt;
  }
  const NodeProto* equal = made_by(value, "Equal");
  if (!equal || input_of(equal) != tokens_) return std::nullopt;
  const std::optional<int64_t> id = graph_.integer(input_of(equal, 1));
  if (!id || *id < 0 || *id > std::numeric_limits<int32_t>::max()) return std::nullopt;
  return static_cast<int32_t>(*id);
}

constexpr std::initializer_list<const char*> kFromValidRows = {"Unsqueeze", "Cast", "Greater",
                                                               "CumSum",    "Cast", "Not"};

// Reads the masks that have been added to the scores, each the second input of an Add. Returns the
// scores without masks, or nothing if there are other terms.
std::string Guesser::read_masks(std::string scores, AttentionConfig& config, Guess& guess) const {
  for (int masks = 0; masks < 3; ++masks) {
    const NodeProto* add = made_by(scores, "Add");
    if (!add) break;
    const std::string& mask = input_of(add, 1);
    const std::string& condition = before(mask, "Where");
    if (const std::string table_name = whole(mask); !table(table_name).empty()) {
      const std::vector<int64_t> size = dims(table_name);
      if (size[0] != size[1]) return "";
      config.set_causal(true);
      guess.output[0] = size[0];
    } else if (const auto end = token(condition, {"Equal", "Unsqueeze", "CumSum", "Cast"})) {
      config.set_document_end(*end);
    } else if (const auto padding =
                   token(condition, {"Unsqueeze", "Greater", "CumSum", "Cast", "Not"})) {
      config.set_padding_token(*padding);
    } else {
      return "";
    }
    scores = input_of(add);
  }
  return made_by(scores, "Mul") ? scores : "";
}

// Rotations are by t * base^(-i / half), of which the table of sines tells the base.
bool Guesser::read_rotary(const std::string& queries, AttentionConfig& config, Guess& guess) const {
  const NodeProto* both = made_by(queries, "Concat");
  if (!both) return true;
  const NodeProto* first = made_by(input_of(both), "Sub");
  const std::string name = whole(input_of(made_by(input_of(first, 1), "Mul"), 1));
  const std::vector<float> sines = table(name);
  const int64_t half = guess.output[1] / config.heads() / 2;
  if (sines.empty() || dims(name)[1] != half) return false;
  const int64_t length = guess.output[0] = dims(name)[0];
  RotaryConfig& rotary = *config.mutable_rotary();
  if (length < 2 || half < 2) return true;  // no rotation depends on the base
  const double angle = std::asin(double{sines[2 * half - 1]});
  double base = std::pow(angle, -static_cast<double>(half) / static_cast<double>(half - 1));
  if (!(base > 0) || !std::isfinite(base)) return false;
  if (std::abs(base - std::round(base)) < 1e-4 * base) base = std::round(base);
  if (static_cast<float>(base) != rotary.base()) rotary.set_base(static_cast<float>(base));
  return true;
}

std::optional<Guess> Guesser::attention(const NodeProto& root) const {
  Guess guess;
  AttentionConfig& config = *guess.config.mutable_attention();
  const NodeProto* rows = &root;
  if (root.op_type() == "Mul") {
    const auto padding = token(input_of(&root, 1), kFromValidRows);
    if (!padding) return std::nullopt;
    config.set_padding_token(*padding);
    rows = made_by(input_of(&root), "Reshape");
  }
  const auto joined = graph_.integers(input_of(rows, 1));
  const NodeProto* means = made_by(before(input_of(rows), "Transpose"), "MatMul");
  const NodeProto* softmax = made_by(input_of(means), "Softmax");
  const NodeProto* values = made_by(before(input_of(means, 1), "Transpose"), "Reshape");
  const auto heads = graph_.integers(input_of(values, 1));
  if (!joined || joined->size() != 3 || !softmax || !heads) return std::nullopt;
  const int64_t width = joined->back(), dim = heads->back();
  if (heads->size() < 4 || heads->size() > 5 || !is_size(width) || !is_size(dim) ||
      !is_size((*heads)[2]) || width % dim != 0) {
    return std::nullopt;
  }
  guess.output = {1, width};
  config.set_heads(width / dim);
  if (heads->size() == 5) config.set_kv_heads((*heads)[2]);
  const std::string scores = read_masks(input_of(softmax), config, guess);
  const std::string& queries = before(before(scores, "Mul"), "MatMul");
  if (queries.empty()) return std::nullopt;
  if (!read_rotary(queries, config, guess)) return std::nullopt;
  return guess;
}

// The tokens' vectors, to which those of positions and segments may be added, in this order.
std::optional<Guess> Guesser::embedding(const NodeProto& root) const {
  Guess guess;
  EmbeddingConfig& config = *guess.config.mutable_embedding();
  const NodeProto* node = &root;
  if (const NodeProto* segments = made_by(input_of(node, 1), "Gather");
      node->op_type() == "Add" && segments) {
    const std::vector<int64_t> table = dims(input_of(segments));
    if (table.size() != 2) return std::nullopt;
    config.set_segments(table[0]);
    if (const auto end = token(input_of(segments, 1), {"Min", "CumSum", "Cast"})) {
      config.set_segment_end(*end);
    }
    guess.parameters.emplace_back("segment");
    node = made_by(input_of(node), made_by(input_of(node), "Add") ? "Add" : "Gather");
  }
  if (node && node->op_type() == "Add") {
    const std::vector<int64_t> positions = dims(whole(input_of(node, 1)));
    if (positions.size() != 2) return std::nullopt;
    config.set_positions(EmbeddingConfig::LEARNED);
    guess.length = positions[0];
    guess.parameters.emplace_back("position");
    node = made_by(input_of(node), "Gather");
  }
  const std::vector<int64_t> table = dims(input_of(node));
  if (!node || node->op_type() != "Gather" || input_of(node, 1) != tokens_ || table.size() != 2) {
    return std::nullopt;
  }
  config.set_vocab_size(table[0]);
  config.set_units(table[1]);
  guess.parameters.emplace_back("weight");
  return guess;
}

std::optional<Guess> Guesser::rms_norm(const NodeProto& root) const {
  const NodeProto* root_of_sum = made_by(input_of(made_by(input_of(&root), "Div"), 1), "Sqrt");
  const NodeProto* sum = made_by(input_of(root_of_sum), "Add");
  const std::optional<float> epsilon = graph_.number(input_of(sum, 1));
  if (root.op_type() != "Mul" || !epsilon) return std::nullopt;
  Guess guess;
  RmsNormConfig& config = *guess.config.mutable_rms_norm();
  if (*epsilon != config.epsilon()) config.set_epsilon(*epsilon);
  guess.parameters = {"weight"};
  return guess;
}

std::optional<Guess> Guesser::swiglu(const NodeProto& root) const {
  const std::string& gate = before(before(input_of(&root), "Mul"), "Split");
  if (root.op_type() != "Mul" || gate.empty()) return std::nullopt;
  Guess guess;
  guess.config.mutable_swiglu();
  return guess;
}

std::optional<Guess> Guesser::to_sequence(const NodeProto& root) const {
  const NodeProto* positions = made_by(input_of(&root), "Reshape");
  const auto shape = graph_.integers(input_of(positions, 1));
  if (root.op_type() != "Transpose" || !shape || shape->size() != 3 || !is_size((*shape)[1]) ||
      !is_size((*shape)[2])) {
    return std::nullopt;
  }
  Guess guess;
  guess.config.mutable_to_sequence();
  guess.output = {(*shape)[2], (*shape)[1]};
  return guess;
}

// The class token and all positions are one constant. Its first row becomes the class token.
std::optional<Guess> Guesser::class_token(const NodeProto& root) const {
  const std::vector<int64_t> table = dims(input_of(&root, 1));
  if (root.op_type() != "Add" || !made_by(input_of(&root), "Pad") || table.size() != 2) {
    return std::nullopt;
  }
  Guess guess;
  guess.config.mutable_class_token();
  guess.output = {table[0], table[1]};
  guess.parameters = {"token_and_position"};
  return guess;
}

std::optional<Guess> Guesser::token_pool(const NodeProto& root) const {
  Guess guess;
  TokenPoolConfig& config = *guess.config.mutable_token_pool();
  if (root.op_type() == "Gather") {
    if (graph_.constant(input_of(&root)) || graph_.integer(input_of(&root, 1)) != 0) {
      return std::nullopt;
    }
    config.set_mode(TokenPoolConfig::FIRST);
    return guess;
  }
  config.set_mode(TokenPoolConfig::MEAN);
  std::string read = input_of(&root);
  if (root.op_type() == "Div") {
    const NodeProto* kept = made_by(before(read, "ReduceSum"), "Mul");
    std::string counted = input_of(kept, 1);
    if (const NodeProto* slice = made_by(counted, "Slice")) counted = input_of(slice);
    const auto padding = token(counted, kFromValidRows);
    if (!padding) return std::nullopt;
    config.set_padding_token(*padding);
    read = input_of(kept);
  } else if (root.op_type() != "ReduceMean") {
    return std::nullopt;
  }
  if (const NodeProto* slice = made_by(read, "Slice")) {
    const auto skip = graph_.integers(input_of(slice, 1));
    if (!skip || skip->size() != 1 || !is_size(skip->front())) return std::nullopt;
    config.set_skip(skip->front());
  }
  return guess;
}

// From the last of the layers to the first, which read each other's rows.
std::optional<Guess> Guesser::recurrent(const NodeProto& root) const {
  if (root.op_type() != "Transpose") return std::nullopt;
  const auto cell_of = [&](const std::string& value) {
    const std::string& joined = before(before(value, "Reshape"), "Transpose");
    const NodeProto* lstm = made_by(joined, "LSTM");
    return lstm ? lstm : made_by(joined, "GRU");
  };
  const NodeProto* last = cell_of(input_of(&root));
  if (!last) return std::nullopt;
  RecurrentConfig config;
  for (const AttributeProto& attribute : last->attribute()) {
    if (attribute.name() == "hidden_size") config.set_hidden(attribute.i());
    if (attribute.s() == "bidirectional") config.set_bidirectional(true);
  }
  int64_t layers = 0;
  for (const NodeProto* cell = last; cell && layers < kMaxRecurrent;
       cell = cell_of(input_of(cell))) {
    ++layers;
  }
  if (layers > 1) config.set_layers(layers);
  if (!is_size(config.hidden())) return std::nullopt;
  Guess guess;
  guess.output = {1, config.hidden() * (config.bidirectional() ? 2 : 1)};
  *(last->op_type() == "LSTM" ? guess.config.mutable_lstm() : guess.config.mutable_gru()) = config;
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (const char* name : {"weight_ih_l", "weight_hh_l", "bias_l"}) {
      guess.parameters.push_back(name + std::to_string(layer));
    }
  }
  return guess;
}

// Writes the operators of a layer without the values of its parameters.
std::string write_template(const Guess& guess, SequenceWriter& out) {
  Node node;
  node.name = kLayer;
  node.signature.output = guess.output;
  for (const std::string& name : guess.parameters) {
    node.signature.parameters.push_back({.name = name, .shape = {}, .init = {}});
  }
  const LayerConfig& config = guess.config;
  switch (config.kind_case()) {
    case LayerConfig::kAttention:
      return out.attention(config.attention(), node, kX);
    case LayerConfig::kEmbedding:
      return out.embedding(config.embedding(), node);
    case LayerConfig::kRmsNorm:
      return out.rms_norm(config.rms_norm(), node, kX);
    case LayerConfig::kSwiglu:
      return out.swiglu(node, kX);
    case LayerConfig::kToSequence:
      return out.to_sequence(node, kX);
    case LayerConfig::kClassToken:
      return out.class_token(config.class_token(), node, kX);
    case LayerConfig::kTokenPool:
      return out.token_pool(config.token_pool(), node, kX);
    case LayerConfig::kLstm:
      return out.recurrent(config.lstm(), /*lstm=*/true, node, kX);
    default:
      return out.recurrent(config.gru(), /*lstm=*/false, node, kX);
  }
}

// Returns the layer if the operators that compute `output` are those of the guess.
std::optional<SequenceLayer> verified(const Guess& guess, const GraphIndex& graph,
                                      const std::string& output, const std::string& tokens,
                                      bool dynamic) {
  const Weights none;
  ModelWriter writer;
  SequenceWriter out(writer, none, kTokens, dynamic);
  const std::string result = write_template(guess, out);
  Template wanted(writer.graph(), graph);
  wanted.bind(kTokens, tokens);
  if (!wanted.equals(result, output)) return std::nullopt;
  SequenceLayer layer{.config = guess.config,
                      .input = guess.config.has_embedding() ? tokens : wanted.value_of(kX),
                      .parameters = {},
                      .nodes = wanted.nodes(),
                      .length = guess.length};
  for (const std::string& name : guess.parameters) {
    layer.parameters[name] = wanted.value_of(std::string(kLayer) + "." + name);
    if (!graph.constant(layer.parameters[name])) return std::nullopt;
  }
  return layer;
}

}  // namespace

GraphIndex::GraphIndex(const GraphProto& graph, const TensorReader& reader)
    : graph_(graph), reader_(reader) {
  for (const TensorProto& tensor : graph.initializer()) constants_[tensor.name()] = &tensor;
  std::set<std::string_view> computed_later;
  for (const NodeProto& node : graph.node()) {
    computed_later.insert(node.output().begin(), node.output().end());
  }
  // Nodes are in topological order. Those of a damaged file that read values of later ones are left
  // out, so that no value depends on itself.
  for (int n = 0; n < graph.node_size(); ++n) {
    const NodeProto& node = graph.node(n);
    if (std::ranges::any_of(node.input(), [&](const std::string& input) {
          return computed_later.contains(input);
        })) {
      continue;
    }
    for (int i = 0; i < node.output_size(); ++i) {
      sources_[node.output(i)] = {n, i};
      computed_later.erase(node.output(i));
    }
    if (node.op_type() != "Constant" || node.output_size() == 0) continue;
    for (const AttributeProto& attribute : node.attribute()) {
      if (attribute.name() == "value") constants_[node.output(0)] = &attribute.t();
    }
  }
}

GraphIndex::Source GraphIndex::source_of(const std::string& value) const {
  const auto found = sources_.find(value);
  return found == sources_.end() ? Source() : found->second;
}

const NodeProto* GraphIndex::made_by(const std::string& value, std::string_view op) const {
  const Source source = source_of(value);
  if (source.node < 0 || graph_.node(source.node).op_type() != op) return nullptr;
  return &graph_.node(source.node);
}

const TensorProto* GraphIndex::constant(const std::string& value) const {
  const auto found = constants_.find(value);
  return found == constants_.end() ? nullptr : found->second;
}

std::optional<std::vector<int64_t>> GraphIndex::integers(const std::string& value) const {
  const TensorProto* found = constant(value);
  if (!found || found->data_type() != TensorProto::INT64 || reader_.elements(*found) > kMaxListed) {
    return std::nullopt;
  }
  return reader_.integers(*found);
}

std::optional<int64_t> GraphIndex::integer(const std::string& value) const {
  const auto all = integers(value);
  return all && all->size() == 1 ? std::optional(all->front()) : std::nullopt;
}

std::optional<float> GraphIndex::number(const std::string& value) const {
  const TensorProto* found = constant(value);
  if (!found || found->data_type() != TensorProto::FLOAT || reader_.elements(*found) != 1) {
    return std::nullopt;
  }
  return reader_.floats(*found)[0];
}

// Layers are looked for from the last operator to the first, since a layer that is found has all of
// the operators that it can have: an embedding includes the addition of positions.
std::map<int, SequenceLayer> find_sequence_layers(const GraphIndex& graph,
                                                  const std::string& tokens, bool dynamic) {
  using Kind = std::optional<Guess> (Guesser::*)(const NodeProto&) const;
  constexpr Kind kKinds[] = {&Guesser::attention,  &Guesser::embedding,   &Guesser::rms_norm,
                             &Guesser::swiglu,     &Guesser::to_sequence, &Guesser::class_token,
                             &Guesser::token_pool, &Guesser::recurrent};
  const Guesser guesser(graph, tokens);
  std::map<int, SequenceLayer> found;
  std::set<int> used;
  for (int n = graph.graph().node_size() - 1; n >= 0; --n) {
    const NodeProto& root = graph.graph().node(n);
    if (used.contains(n) || root.output_size() != 1) continue;
    for (const Kind kind : kKinds) {
      const std::optional<Guess> guess = (guesser.*kind)(root);
      if (!guess) continue;
      auto layer = verified(*guess, graph, root.output(0), tokens, dynamic);
      if (!layer) continue;
      used.insert(layer->nodes.begin(), layer->nodes.end());
      found[n] = std::move(*layer);
      break;
    }
  }
  return found;
}

}  // namespace trireme::model::onnx
