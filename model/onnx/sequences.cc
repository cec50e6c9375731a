#include "model/onnx/sequences.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace trireme::model::onnx {
namespace {

constexpr float kMasked = -1e9F;  // added to a score
constexpr int64_t kToTheEnd = std::numeric_limits<int64_t>::max();

}  // namespace

// Queries are [N, heads, T, D]; with fewer heads of keys and values [N, kv_heads, group, T, D], and
// keys and values are [N, kv_heads, 1, T, D].
struct SequenceWriter::Heads {
  Heads(const AttentionConfig& config, const Shape& y)
      : all(config.heads()),
        kv(config.has_kv_heads() ? config.kv_heads() : config.heads()),
        length(y[0]),
        dim(y[1] / config.heads()) {}

  bool grouped() const { return kv < all; }
  int rank() const { return grouped() ? 5 : 4; }

  int64_t all, kv, length, dim;
};

const Weight& SequenceWriter::weight_of(const Node& node, const char* name) const {
  const auto found =
      std::ranges::find(node.signature.parameters, name, &Signature::Parameter::name);
  return weights_.find(parameter_name(node, *found))->second;
}

std::string SequenceWriter::parameter(const Node& node, const char* name) {
  const auto found =
      std::ranges::find(node.signature.parameters, name, &Signature::Parameter::name);
  const std::string full = parameter_name(node, *found);
  if (weights_.empty()) return full;
  const Weight& weight = weights_.find(full)->second;
  return out_.floats(full, weight.shape, weight.values);
}

std::string SequenceWriter::positions(const Node& node) {
  if (weights_.empty()) return parameter(node, "position");
  const Weight& table = weight_of(node, "position");
  const Shape shape{node.signature.output[0], table.shape[1]};
  const auto begin = table.values.begin();
  return out_.floats(node.name + ".position", shape, {begin, begin + shape.elements()});
}

template <class Write>
std::string SequenceWriter::shared(const std::string& name, Write write) {
  const auto found = shared_.find(name);
  if (found != shared_.end()) return found->second;
  const std::string value = write();
  shared_[name] = value;
  return value;
}

std::string SequenceWriter::reshape(const std::string& name, const std::string& x,
                                    std::vector<int64_t> shape) {
  return out_.result("Reshape", name, {x, out_.integers(name + ".shape", shape)});
}

std::string SequenceWriter::transpose(const std::string& name, const std::string& x,
                                      const std::vector<int64_t>& order) {
  NodeProto& node = out_.add("Transpose", name, {x});
  set_attribute(node, "perm", order);
  return node.output(0);
}

std::string SequenceWriter::unsqueezed(const std::string& name, const std::string& x,
                                       const std::vector<int64_t>& axes) {
  return out_.result("Unsqueeze", name, {x, out_.integers(name + ".axes", axes)});
}

std::string SequenceWriter::cast(const std::string& name, const std::string& x, int64_t type) {
  NodeProto& node = out_.add("Cast", name, {x});
  set_attribute(node, "to", type);
  return node.output(0);
}

std::string SequenceWriter::up_to_length(const std::string& constant, int axis) {
  if (!dynamic_) return constant;
  const std::string length = shared("length", [&] {
    const std::string shape = out_.result("Shape", "input.shape", {tokens_});
    return out_.result("Gather", "length", {shape, out_.integers("vector.1", {1})});
  });
  const std::string name = fmt::format("{}/{}", constant, axis == 0 ? "rows" : "columns");
  return shared(name, [&] {
    return out_.result("Slice", name,
                       {constant, out_.integers("vector.0", {0}), length,
                        out_.integers(fmt::format("vector.{}", axis), {axis})});
  });
}

std::string SequenceWriter::embedding(const EmbeddingConfig& config, const Node& node) {
  std::string y =
      out_.result("Gather", node.name + "/tokens", {parameter(node, "weight"), tokens_});
  if (config.positions() != EmbeddingConfig::NONE) {
    y = out_.result("Add", node.name + "/positions", {y, up_to_length(positions(node))});
  }
  if (config.segments() == 0) return y;
  return out_.result("Add", node.name, {y, segments(config, node)});
}

// Returns the vectors of the segments, [N, T, F], or that of the first segment.
std::string SequenceWriter::segments(const EmbeddingConfig& config, const Node& node) {
  const std::string table = parameter(node, "segment"), name = node.name + "/segment";
  if (!config.has_segment_end()) {
    return out_.result("Gather", name + "s", {table, out_.integer(name + ".first", 0)});
  }
  const std::string ends = out_.result(
      "Equal", name + "/ends", {tokens_, out_.integer(name + ".end", config.segment_end())});
  NodeProto& before =
      out_.add("CumSum", name + "/before",
               {cast(name + "/counted", ends, TensorProto::INT64), out_.integer("axis.1", 1)});
  set_attribute(before, "exclusive", int64_t{1});
  const std::string ids =
      out_.result("Min", name + "/ids",
                  {before.output(0), out_.integer(name + ".last", config.segments() - 1)});
  return out_.result("Gather", name + "s", {table, ids});
}

std::string SequenceWriter::dense(const DenseConfig& config, const Node& node,
                                  const std::string& x) {
  const std::string weight = transpose(node.name + "/weight", parameter(node, "weight"), {1, 0});
  if (!config.bias()) return out_.result("MatMul", node.name, {x, weight});
  const std::string product = out_.result("MatMul", node.name + "/product", {x, weight});
  return out_.result("Add", node.name, {product, parameter(node, "bias")});
}

// Returns [N, T, heads * D] with the heads before the tokens.
std::string SequenceWriter::split_heads(const Heads& heads, const std::string& name,
                                        const std::string& x, bool queries) {
  if (!heads.grouped()) {
    const auto rows = reshape(name + "/heads", x, {0, 0, heads.all, heads.dim});
    return transpose(name, rows, {0, 2, 1, 3});
  }
  const int64_t group = queries ? heads.all / heads.kv : 1;
  const auto rows = reshape(name + "/heads", x, {0, 0, heads.kv, group, heads.dim});
  return transpose(name, rows, {0, 2, 3, 1, 4});
}

// Rotates the pairs of x [..., T, D] as ops::Rotary does.
std::string SequenceWriter::rotated(const Heads& heads, const std::string& name,
                                    const std::string& x, double base) {
  const int64_t half = heads.dim / 2;
  const auto table = [&](const char* function) {
    std::vector<float> values;
    for (int64_t t = 0; t < heads.length; ++t) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(t) *
                             std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
        values.push_back(
            static_cast<float>(function[0] == 'c' ? std::cos(angle) : std::sin(angle)));
      }
    }
    const std::string constant = fmt::format("rotary.{}.{}.{}", function, heads.dim, base);
    return up_to_length(out_.floats(constant, {heads.length, half}, values));
  };
  const std::string cos = table("cos"), sin = table("sin");
  NodeProto& halves = out_.add("Split", name + "/halves", {x});
  set_attribute(halves, "axis", int64_t{-1});
  halves.set_output(0, name + "/halves.first");
  halves.add_output(name + "/halves.second");
  const std::string a = halves.output(0), b = halves.output(1);
  const auto product = [&](const char* part, const std::string& left, const std::string& right) {
    return out_.result("Mul", name + part, {left, right});
  };
  const std::string first =
      out_.result("Sub", name + "/first", {product("/a_cos", a, cos), product("/b_sin", b, sin)});
  const std::string second =
      out_.result("Add", name + "/second", {product("/b_cos", b, cos), product("/a_sin", a, sin)});
  NodeProto& both = out_.add("Concat", name, {first, second});
  set_attribute(both, "axis", int64_t{-1});
  return both.output(0);
}

std::string SequenceWriter::attention(const AttentionConfig& config, const Node& node,
                                      const std::string& x) {
  const Heads heads(config, node.signature.output);
  const std::string& name = node.name;
  const int64_t q_width = heads.all * heads.dim, kv_width = heads.kv * heads.dim;
  NodeProto& split =
      out_.add("Split", name + "/qkv",
               {x, out_.integers(name + "/qkv.sizes", {q_width, kv_width, kv_width})});
  set_attribute(split, "axis", int64_t{2});
  split.set_output(0, name + "/q.rows");
  split.add_output(name + "/k.rows");
  split.add_output(name + "/v.rows");
  std::string q = split_heads(heads, name + "/q", name + "/q.rows", /*queries=*/true);
  std::string k = split_heads(heads, name + "/k", name + "/k.rows", /*queries=*/false);
  const std::string v = split_heads(heads, name + "/v", name + "/v.rows", /*queries=*/false);
  if (config.has_rotary()) {
    q = rotated(heads, name + "/q/rotated", q, config.rotary().base());
    k = rotated(heads, name + "/k/rotated", k, config.rotary().base());
  }
  const std::vector<int64_t> swap =
      heads.grouped() ? std::vector<int64_t>{0, 1, 2, 4, 3} : std::vector<int64_t>{0, 1, 3, 2};
  const std::string products =
      out_.result("MatMul", name + "/products", {q, transpose(name + "/k/columns", k, swap)});
  const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(heads.dim)));
  std::string scores =
      out_.result("Mul", name + "/scores", {products, scalar(name + "/scale", scale)});
  NodeProto& softmax = out_.add("Softmax", name + "/softmax", {masked(config, heads, scores)});
  set_attribute(softmax, "axis", int64_t{-1});
  const std::string means = out_.result("MatMul", name + "/means", {softmax.output(0), v});
  const std::vector<int64_t> rows =
      heads.grouped() ? std::vector<int64_t>{0, 3, 1, 2, 4} : std::vector<int64_t>{0, 2, 1, 3};
  const std::string joined = transpose(name + "/rows", means, rows);
  if (!config.has_padding_token()) return reshape(name, joined, {0, 0, q_width});
  const std::string y = reshape(name + "/joined", joined, {0, 0, q_width});
  return out_.result("Mul", name, {y, valid_rows(config.padding_token())});
}

std::string SequenceWriter::masked(const AttentionConfig& config, const Heads& heads,
                                   const std::string& scores) {
  std::string sum = scores;
  const std::string name = sum.substr(0, sum.rfind('/'));
  const auto add = [&](const char* what, const std::string& mask) {
    sum = out_.result("Add", name + what, {sum, mask});
  };
  if (config.causal()) add("/causal", causal_mask(heads.length));
  if (config.has_padding_token()) {
    add("/padding", padding_mask(config.padding_token(), heads.rank()));
  }
  if (config.has_document_end()) {
    add("/documents", document_mask(config.document_end(), heads.rank()));
  }
  return sum;
}

std::string SequenceWriter::causal_mask(int64_t length) {
  std::vector<float> values(static_cast<size_t>(length * length));
  for (int64_t query = 0; query < length; ++query) {
    for (int64_t key = query + 1; key < length; ++key) {
      values[query * length + key] = kMasked;
    }
  }
  const std::string mask = out_.floats(fmt::format("causal.{}", length), {length, length}, values);
  return up_to_length(up_to_length(mask), 1);
}

std::string SequenceWriter::mask_where(const std::string& name, const std::string& condition) {
  return out_.result("Where", name,
                     {condition, scalar("mask.seen", 0), scalar("mask.unseen", kMasked)});
}

// A token counts unless it and all after it are padding.
std::string SequenceWriter::valid(int32_t padding) {
  const std::string name = fmt::format("padding.{}", padding);
  return shared(name, [&] {
    const std::string equal =
        out_.result("Equal", name + "/equal", {tokens_, out_.integer(name + ".token", padding)});
    const std::string other = out_.result("Not", name + "/other", {equal});
    NodeProto& after =
        out_.add("CumSum", name + "/after",
                 {cast(name + "/counted", other, TensorProto::INT64), out_.integer("axis.1", 1)});
    set_attribute(after, "reverse", int64_t{1});
    return out_.result("Greater", name + "/valid", {after.output(0), out_.integer("zero", 0)});
  });
}

std::string SequenceWriter::valid_rows(int32_t padding) {
  const std::string name = fmt::format("padding.{}/rows", padding);
  return shared(name, [&] {
    const std::string numbers = cast(name + "/numbers", valid(padding), TensorProto::FLOAT);
    return unsqueezed(name, numbers, {2});
  });
}

std::string SequenceWriter::padding_mask(int32_t padding, int rank) {
  const std::string name = fmt::format("padding.{}/mask.{}", padding, rank);
  return shared(name, [&] {
    std::vector<int64_t> axes;
    for (int axis = 1; axis < rank - 1; ++axis) axes.push_back(axis);
    return mask_where(name, unsqueezed(name + "/keys", valid(padding), axes));
  });
}

// Tokens are in the same document if equally many documents have ended before them.
std::string SequenceWriter::document_mask(int32_t end, int rank) {
  const std::string name = fmt::format("documents.{}/mask.{}", end, rank);
  return shared(name, [&] {
    const std::string ends =
        out_.result("Equal", name + "/ends", {tokens_, out_.integer(name + ".token", end)});
    NodeProto& documents =
        out_.add("CumSum", name + "/documents",
                 {cast(name + "/counted", ends, TensorProto::INT64), out_.integer("axis.1", 1)});
    set_attribute(documents, "exclusive", int64_t{1});
    std::vector<int64_t> of_keys, of_queries;
    for (int axis = 1; axis < rank - 2; ++axis) of_queries.push_back(axis);
    of_keys = of_queries;
    of_keys.push_back(rank - 2);
    of_queries.push_back(rank - 1);
    const std::string same =
        out_.result("Equal", name + "/same",
                    {unsqueezed(name + "/queries", documents.output(0), of_queries),
                     unsqueezed(name + "/keys", documents.output(0), of_keys)});
    return mask_where(name, same);
  });
}

std::string SequenceWriter::rms_norm(const RmsNormConfig& config, const Node& node,
                                     const std::string& x) {
  const std::string& name = node.name;
  NodeProto& mean =
      out_.add("ReduceMean", name + "/mean", {out_.result("Mul", name + "/squares", {x, x})});
  set_attribute(mean, "axes", std::vector<int64_t>{-1});
  set_attribute(mean, "keepdims", int64_t{1});
  const std::string sum = out_.result(
      "Add", name + "/sum", {mean.output(0), scalar(name + "/epsilon", config.epsilon())});
  const std::string root = out_.result("Sqrt", name + "/root", {sum});
  const std::string normalized = out_.result("Div", name + "/normalized", {x, root});
  return out_.result("Mul", name, {normalized, parameter(node, "weight")});
}

std::string SequenceWriter::swiglu(const Node& node, const std::string& x) {
  const std::string& name = node.name;
  NodeProto& halves = out_.add("Split", name + "/halves", {x});
  set_attribute(halves, "axis", int64_t{-1});
  halves.set_output(0, name + "/gate");
  halves.add_output(name + "/values");
  const std::string sigmoid = out_.result("Sigmoid", name + "/sigmoid", {name + "/gate"});
  const std::string silu = out_.result("Mul", name + "/silu", {name + "/gate", sigmoid});
  return out_.result("Mul", name, {silu, name + "/values"});
}

std::string SequenceWriter::to_sequence(const Node& node, const std::string& x) {
  const Shape& y = node.signature.output;
  return transpose(node.name, reshape(node.name + "/positions", x, {0, y[1], y[0]}), {0, 2, 1});
}

// Adds a row of zeros in front, and then the class token and the positions.
std::string SequenceWriter::class_token(const ClassTokenConfig& config, const Node& node,
                                        const std::string& x) {
  std::string added = node.name + ".token_and_position";
  if (!weights_.empty()) {
    const Shape& y = node.signature.output;
    std::vector<float> values(static_cast<size_t>(y.elements()));
    if (config.positions()) values = weight_of(node, "position").values;
    const std::vector<float>& token = weight_of(node, "token").values;
    for (size_t i = 0; i < token.size(); ++i) values[i] += token[i];
    added = out_.floats(added, y, values);
  }
  const std::string padded = out_.result(
      "Pad", node.name + "/padded", {x, out_.integers(node.name + "/pads", {0, 1, 0, 0, 0, 0})});
  return out_.result("Add", node.name, {padded, added});
}

std::string SequenceWriter::token_pool(const TokenPoolConfig& config, const Node& node,
                                       const std::string& x) {
  const std::string& name = node.name;
  if (config.mode() == TokenPoolConfig::FIRST) {
    NodeProto& first = out_.add("Gather", name, {x, out_.integer("zero", 0)});
    set_attribute(first, "axis", int64_t{1});
    return first.output(0);
  }
  const auto axis = [&] { return out_.integers("vector.1", {1}); };
  const auto from_skip = [&](const char* part, const std::string& all) {
    if (config.skip() == 0) return all;
    return out_.result("Slice", name + part,
                       {all, out_.integers(name + "/skip", {config.skip()}),
                        out_.integers("end", {kToTheEnd}), axis()});
  };
  const std::string read = from_skip("/read", x);
  if (!config.has_padding_token()) {
    NodeProto& mean = out_.add("ReduceMean", name, {read});
    set_attribute(mean, "axes", std::vector<int64_t>{1});
    set_attribute(mean, "keepdims", int64_t{0});
    return mean.output(0);
  }
  const std::string counted = from_skip("/counted", valid_rows(config.padding_token()));
  const auto sum_of = [&](const char* part, const std::string& rows) {
    NodeProto& sum = out_.add("ReduceSum", name + part, {rows, axis()});
    set_attribute(sum, "keepdims", int64_t{0});
    return sum.output(0);
  };
  const std::string sum = sum_of("/sum", out_.result("Mul", name + "/kept", {read, counted}));
  const std::string count =
      out_.result("Max", name + "/count", {sum_of("/tokens", counted), scalar("one", 1)});
  return out_.result("Div", name, {sum, count});
}

}  // namespace trireme::model::onnx
