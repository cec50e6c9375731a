// The ONNX operators that are supported, and the layers that they become.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "model/onnx/importer.h"

namespace trireme::model::onnx {
namespace {

using Pair = std::array<int64_t, 2>;

constexpr int64_t kMaxOnnxWindow = 1 << 16;

// Sets a field to height and width: one number if they are equal, none if they are the default.
void set_sides(google::protobuf::RepeatedField<int64_t>& field, const Pair& pair,
               const Pair& unset) {
  if (pair == unset) return;
  field.Add(pair[0]);
  if (pair[1] != pair[0]) field.Add(pair[1]);
}

bool is_one_of(int64_t value, std::initializer_list<int64_t> choices) {
  for (const int64_t choice : choices) {
    if (value == choice) return true;
  }
  return false;
}

// Returns height and width from an attribute. Throws Unsupported unless both are in
// [min, kMaxOnnxWindow].
Pair sides(const NodeView& node, const char* attribute, const Pair& unset, int64_t min) {
  const std::vector<int64_t> numbers = node.integers(attribute);
  if (numbers.empty()) return unset;
  if (numbers.size() != 2) throw Unsupported{node.place, "only images [N, C, H, W] are supported"};
  for (const int64_t number : numbers) {
    if (number < min || number > kMaxOnnxWindow) {
      throw Unsupported{node.place, fmt::format("{} is {}", attribute, number)};
    }
  }
  return {numbers[0], numbers[1]};
}

class Operators final : public Importer {
 public:
  using Importer::Importer;

 private:
  Handler handler(std::string_view op) const override {
    static const std::unordered_map<std::string_view, void (Operators::*)(const NodeView&)> all = {
        {"Add", &Operators::elementwise},
        {"AveragePool", &Operators::average_pool},
        {"BatchNormalization", &Operators::batch_norm},
        {"Cast", &Operators::cast},
        {"Concat", &Operators::concat},
        {"Constant", &Operators::constant},
        {"Conv", &Operators::conv},
        {"Div", &Operators::elementwise},
        {"Dropout", &Operators::dropout},
        {"Erf", &Operators::elementwise},
        {"Exp", &Operators::elementwise},
        {"Flatten", &Operators::flatten},
        {"Gather", &Operators::gather},
        {"Gelu", &Operators::activation},
        {"Gemm", &Operators::gemm},
        {"GlobalAveragePool", &Operators::global_average_pool},
        {"GroupNormalization", &Operators::group_norm},
        {"Identity", &Operators::identity},
        {"InstanceNormalization", &Operators::instance_norm},
        {"LayerNormalization", &Operators::layer_norm},
        {"LogSoftmax", &Operators::softmax},
        {"MatMul", &Operators::mat_mul},
        {"MaxPool", &Operators::max_pool},
        {"Mul", &Operators::elementwise},
        {"Neg", &Operators::elementwise},
        {"Pow", &Operators::elementwise},
        {"ReduceMean", &Operators::reduce_mean},
        {"Relu", &Operators::elementwise},
        {"Reshape", &Operators::reshape},
        {"Shape", &Operators::shape},
        {"Sigmoid", &Operators::elementwise},
        {"Softmax", &Operators::softmax},
        {"Sqrt", &Operators::elementwise},
        {"Squeeze", &Operators::squeeze},
        {"Sub", &Operators::elementwise},
        {"Swish", &Operators::activation},
        {"Tanh", &Operators::elementwise},
        {"Unsqueeze", &Operators::unsqueeze},
    };
    const auto found = all.find(op);
    return found == all.end() ? nullptr : static_cast<Handler>(found->second);
  }

  // --- Operators that are layers.
  void activation(const NodeView& node);
  void average_pool(const NodeView& node);
  void batch_norm(const NodeView& node);
  void concat(const NodeView& node);
  void conv(const NodeView& node);
  void dropout(const NodeView& node);
  void flatten(const NodeView& node);
  void gemm(const NodeView& node);
  void global_average_pool(const NodeView& node);
  void group_norm(const NodeView& node);
  void instance_norm(const NodeView& node);
  void layer_norm(const NodeView& node);
  void mat_mul(const NodeView& node);
  void max_pool(const NodeView& node);
  void reduce_mean(const NodeView& node);
  void reshape(const NodeView& node);
  void softmax(const NodeView& node);
  void squeeze(const NodeView& node);
  void dense(const NodeView& node, bool transposed, float alpha, float beta);
  void add_flatten(const NodeView& node, int input);
  bool from_groups(const NodeView& node, std::span<const int64_t> to);
  std::optional<int64_t> groups_of(int input, std::span<const int64_t> to) const;
  int add_group_norm(const NodeView& node, int input, int64_t groups);
  struct Window {
    Pair kernel{1, 1};
    Pair stride{1, 1};
    Pair padding{0, 0};
    Pair dilation{1, 1};
  };
  Window window(const NodeView& node, int input, Pair kernel) const;
  PoolConfig pool(const NodeView& node, int input) const;

  // --- Operators on constants and shapes.
  void cast(const NodeView& node);
  void constant(const NodeView& node);
  void gather(const NodeView& node);
  void identity(const NodeView& node);
  void shape(const NodeView& node);
  void unsqueeze(const NodeView& node);
};

// --- Windows.

Operators::Window Operators::window(const NodeView& node, int input, Pair kernel) const {
  Window window;
  window.kernel = sides(node, "kernel_shape", kernel, 1);
  window.stride = sides(node, "strides", {1, 1}, 1);
  window.dilation = sides(node, "dilations", {1, 1}, 1);
  const std::optional<Shape> shape = shape_of(input);
  if (shape && shape->rank() != 3) throw Unsupported{node.place, "the input must be [N, C, H, W]"};
  const std::string padding = node.text("auto_pad");
  const std::vector<int64_t> pads = node.integers("pads");
  if (!pads.empty() && pads.size() != 4) {
    throw Unsupported{node.place, "only images [N, C, H, W] are supported"};
  }
  for (size_t i = 0; i < 2; ++i) {
    const int64_t reach = window.dilation[i] * (window.kernel[i] - 1) + 1;
    if (padding == "SAME_UPPER" || padding == "SAME_LOWER") {
      if (!shape) throw Unsupported{node.place, "auto_pad requires an input of known size"};
      const int64_t extent = (*shape)[static_cast<int>(i) + 1];
      const int64_t outputs = (extent + window.stride[i] - 1) / window.stride[i];
      const int64_t total = std::max<int64_t>(0, (outputs - 1) * window.stride[i] + reach - extent);
      if (total % 2 != 0) throw Unsupported{node.place, "asymmetric padding is not supported"};
      window.padding[i] = total / 2;
    } else if (padding != "VALID" && !pads.empty()) {
      if (pads[i] != pads[i + 2])
        throw Unsupported{node.place, "asymmetric padding is not supported"};
      if (pads[i] < 0 || pads[i] > kMaxOnnxWindow) {
        throw Unsupported{node.place, fmt::format("padding is {}", pads[i])};
      }
      window.padding[i] = pads[i];
    }
    if (node.integer("ceil_mode", 0) == 0) continue;
    const bool exact =
        shape &&
        ((*shape)[static_cast<int>(i) + 1] + 2 * window.padding[i] - reach) % window.stride[i] == 0;
    if (!exact) throw Unsupported{node.place, "ceil_mode is not supported"};
  }
  return window;
}

PoolConfig Operators::pool(const NodeView& node, int input) const {
  if (!node.has("kernel_shape")) throw_damaged(fmt::format("a {} has no kernel_shape", node.op()));
  const Window geometry = window(node, input, {1, 1});
  if (geometry.dilation != Pair{1, 1}) {
    throw Unsupported{node.place, "dilation is not supported"};
  }
  PoolConfig config;
  config.add_kernel(geometry.kernel[0]);
  if (geometry.kernel[1] != geometry.kernel[0]) config.add_kernel(geometry.kernel[1]);
  set_sides(*config.mutable_stride(), geometry.stride, geometry.kernel);
  set_sides(*config.mutable_padding(), geometry.padding, {0, 0});
  return config;
}

void Operators::max_pool(const NodeView& node) {
  const int input = layer_of(node, node.input(0));
  LayerConfig config;
  *config.mutable_max_pool() = pool(node, input);
  set_output(node, LayerValue{add_layer(node, std::move(config), {input})});
}

void Operators::average_pool(const NodeView& node) {
  const int input = layer_of(node, node.input(0));
  LayerConfig config;
  PoolConfig& pool_config = *config.mutable_average_pool();
  pool_config = pool(node, input);
  const auto is = [](const google::protobuf::RepeatedField<int64_t>& field, int64_t value) {
    return field.size() == 1 && field[0] == value;
  };
  // PyTorch exports adaptive pooling to the input's own size as a pooling with a 1x1 kernel.
  if (is(pool_config.kernel(), 1) && pool_config.stride().empty() &&
      pool_config.padding().empty()) {
    return set_output(node, LayerValue{input});
  }
  if (!pool_config.padding().empty() && node.integer("count_include_pad", 0) == 0) {
    pool_config.set_include_padding(false);
  }
  set_output(node, LayerValue{add_layer(node, std::move(config), {input})});
}

void Operators::conv(const NodeView& node) {
  const int input = layer_of(node, node.input(0));
  const std::vector<int64_t> dims = extents(node, node.input(1));
  if (dims.size() != 4) throw Unsupported{node.place, "only images [N, C, H, W] are supported"};
  const Window geometry = window(node, input, {dims[2], dims[3]});
  if (geometry.kernel != Pair{dims[2], dims[3]}) {
    throw_damaged(fmt::format("kernel_shape of '{}' does not fit its weight", node.name()));
  }
  LayerConfig config;
  Conv2dConfig& conv = *config.mutable_conv2d();
  conv.set_channels(dims[0]);
  conv.add_kernel(dims[2]);
  if (dims[3] != dims[2]) conv.add_kernel(dims[3]);
  set_sides(*conv.mutable_stride(), geometry.stride, {1, 1});
  set_sides(*conv.mutable_padding(), geometry.padding, {0, 0});
  set_sides(*conv.mutable_dilation(), geometry.dilation, {1, 1});
  const int64_t groups = node.integer("group", 1);
  if (groups != 1) conv.set_groups(groups);
  if (!node.has_input(2)) conv.set_bias(false);
  const std::optional<Shape> shape = shape_of(input);
  if (shape && (groups < 1 || (*shape)[0] / groups != dims[1])) {
    throw_damaged(fmt::format("the weight of '{}' does not fit its input {}", node.name(),
                              shape->to_string()));
  }
  const int layer = add_layer(node, std::move(config), {input}, node.input(1));
  add_weight(layer, "weight", Shape(dims), floats(node, node.input(1)));
  if (node.has_input(2)) add_weight(layer, "bias", {dims[0]}, floats(node, node.input(2)));
  set_output(node, LayerValue{layer});
}

// --- Matrix products.

void Operators::gemm(const NodeView& node) {
  if (node.integer("transA", 0) != 0) throw Unsupported{node.place, "transA is not supported"};
  dense(node, node.integer("transB", 0) != 0, node.number("alpha", 1), node.number("beta", 1));
}

void Operators::mat_mul(const NodeView& node) { dense(node, /*transposed=*/false, 1, 1); }

// Adds a dense layer. `transposed`: the weight is [units, inputs], as in Trireme, not
// [inputs, units].
void Operators::dense(const NodeView& node, bool transposed, float alpha, float beta) {
  const int input = layer_of(node, node.input(0));
  const std::vector<int64_t> dims = extents(node, node.input(1));
  if (dims.size() != 2) throw Unsupported{node.place, "the weight must have two dimensions"};
  const int64_t units = dims[transposed ? 0 : 1];
  const int64_t inputs = dims[transposed ? 1 : 0];
  const std::optional<Shape> shape = shape_of(input);
  if (shape && shape->rank() != 1) throw Unsupported{node.place, "the input must be [N, F]"};
  if (shape && (*shape)[0] != inputs) {
    throw_damaged(fmt::format("the weight of '{}' does not fit its input {}", node.name(),
                              shape->to_string()));
  }
  LayerConfig config;
  config.mutable_dense()->set_units(units);
  if (!node.has_input(2)) config.mutable_dense()->set_bias(false);
  const int layer = add_layer(node, std::move(config), {input}, node.input(1));

  const std::vector<float> stored = floats(node, node.input(1));
  std::vector<float> weight(stored.size());
  for (size_t i = 0; i < weight.size(); ++i) {
    const size_t unit = i / inputs;
    const size_t feature = i % inputs;
    weight[i] = alpha * stored[transposed ? i : feature * units + unit];
  }
  add_weight(layer, "weight", {units, inputs}, std::move(weight));
  if (node.has_input(2)) {
    std::vector<float> bias = floats(node, node.input(2));
    if (bias.size() == 1) bias.resize(units, bias[0]);
    for (float& value : bias) value *= beta;
    add_weight(layer, "bias", {units}, std::move(bias));
  }
  set_output(node, LayerValue{layer});
}

// --- Norms, activations with an operator of their own, dropout.

void Operators::batch_norm(const NodeView& node) {
  if (node.integer("training_mode", 0) != 0) {
    throw Unsupported{node.place, "training_mode is not supported"};
  }
  const int input = layer_of(node, node.input(0));
  LayerConfig config;
  BatchNormConfig& norm = *config.mutable_batch_norm();
  const float epsilon = node.number("epsilon", 1e-5F);
  if (epsilon != norm.epsilon()) norm.set_epsilon(epsilon);
  // ONNX's momentum is the weight of the old value, Trireme's that of the new one. Rounding removes
  // the f32 error of 1 - 0.9.
  const double momentum = std::round((1 - double{node.number("momentum", 0.9F)}) * 1e6) / 1e6;
  if (static_cast<float>(momentum) != norm.momentum()) {
    norm.set_momentum(static_cast<float>(momentum));
  }
  const int layer = add_layer(node, std::move(config), {input}, node.input(1));
  const char* const names[] = {"weight", "bias", "running_mean", "running_var"};
  const std::optional<Shape> shape = shape_of(input);
  for (int i = 0; i < 4; ++i) {
    std::vector<float> values = floats(node, node.input(i + 1));
    const int64_t channels = shape ? (*shape)[0] : static_cast<int64_t>(values.size());
    add_weight(layer, names[i], {channels}, std::move(values));
  }
  set_output(node, LayerValue{layer});
}

int Operators::add_group_norm(const NodeView& node, int input, int64_t groups) {
  LayerConfig config;
  GroupNormConfig& norm = *config.mutable_group_norm();
  norm.set_num_groups(groups);
  const float epsilon = node.number("epsilon", 1e-5F);
  if (epsilon != norm.epsilon()) norm.set_epsilon(epsilon);
  return add_layer(node, std::move(config), {input}, node.input(1));
}

void Operators::group_norm(const NodeView& node) {
  const int input = layer_of(node, node.input(0));
  const int64_t groups = node.integer("num_groups", 0);
  const int layer = add_group_norm(node, input, groups);
  const std::optional<Shape> shape = shape_of(input);
  for (int i : {1, 2}) {
    std::vector<float> values = floats(node, node.input(i));
    // Opset 18 has one value for each group, later opsets have one for each channel.
    const auto count = static_cast<int64_t>(values.size());
    if (shape && count == groups && count < (*shape)[0]) {
      std::vector<float> repeated;
      for (const float v : values) repeated.insert(repeated.end(), (*shape)[0] / groups, v);
      values = std::move(repeated);
    }
    const Shape channels{shape ? (*shape)[0] : count};
    add_weight(layer, i == 1 ? "weight" : "bias", channels, std::move(values));
  }
  set_output(node, LayerValue{layer});
}

// Instance norm of channels, or group norm as exported before opset 21: instance norm of groups of
// channels, followed by separate operators for scale and shift of the channels.
void Operators::instance_norm(const NodeView& node) {
  std::vector<float> weight = floats(node, node.input(1)), bias = floats(node, node.input(2));
  const auto channels = static_cast<int64_t>(weight.size());
  if (const auto* of = std::get_if<GroupedValue>(&value(node.input(0)))) {
    const GroupedValue groups = *of;
    if (std::ranges::any_of(weight, [](float w) { return w != 1; }) ||
        std::ranges::any_of(bias, [](float b) { return b != 0; })) {
      throw Unsupported{node.place,
                        "a scale or a shift for each group of channels is not supported"};
    }
    const int layer = add_group_norm(node, groups.layer, groups.groups);
    layers_[layer].config.mutable_group_norm()->set_affine(false);
    return set_output(node, GroupedValue{layer, groups.groups});
  }
  const int layer = add_group_norm(node, layer_of(node, node.input(0)), channels);
  add_weight(layer, "weight", {channels}, std::move(weight));
  add_weight(layer, "bias", {channels}, std::move(bias));
  set_output(node, LayerValue{layer});
}

void Operators::layer_norm(const NodeView& node) {
  const int input = layer_of(node, node.input(0));
  if (!is_one_of(node.integer("axis", -1), {-1, 1})) {
    throw Unsupported{node.place, "only the last axis of [N, F] is supported"};
  }
  LayerConfig config;
  LayerNormConfig& norm = *config.mutable_layer_norm();
  const float epsilon = node.number("epsilon", 1e-5F);
  if (epsilon != norm.epsilon()) norm.set_epsilon(epsilon);
  const int layer = add_layer(node, std::move(config), {input}, node.input(1));
  std::vector<float> scale = floats(node, node.input(1));
  const std::optional<Shape> shape = shape_of(input);
  const Shape features{shape ? (*shape)[0] : static_cast<int64_t>(scale.size())};
  std::vector<float> bias(scale.size(), 0);
  if (node.has_input(2)) bias = floats(node, node.input(2));
  add_weight(layer, "weight", features, std::move(scale));
  add_weight(layer, "bias", features, std::move(bias));
  set_output(node, LayerValue{layer});
}

void Operators::activation(const NodeView& node) {
  const int input = layer_of(node, node.input(0));
  LayerConfig config;
  if (node.op() == "Swish") {
    if (node.number("alpha", 1) != 1) throw Unsupported{node.place, "alpha is not supported"};
    config.mutable_silu();
  } else if (node.text("approximate") == "tanh") {
    config.mutable_gelu_tanh();
  } else {
    config.mutable_gelu();
  }
  set_output(node, LayerValue{add_layer(node, std::move(config), {input})});
}

void Operators::dropout(const NodeView& node) {
  float rate = node.number("ratio", 0.5F);
  if (node.has_input(1)) rate = scalar(node.input(1)).value_or(-1);
  if (!(rate >= 0 && rate < 1)) {
    throw Unsupported{node.place, "the ratio must be a constant in [0, 1)"};
  }
  if (rate == 0) return identity(node);
  const int input = layer_of(node, node.input(0));
  LayerConfig config;
  config.mutable_dropout()->set_rate(rate);
  set_output(node, LayerValue{add_layer(node, std::move(config), {input})});
}

// A softmax at the end of the model is omitted, since the loss includes it.
void Operators::softmax(const NodeView& node) {
  if (node.output() != graph_.output(0).name()) {
    throw Unsupported{node.place, "only supported as the last operator"};
  }
  const int input = layer_of(node, node.input(0));
  const std::optional<Shape> shape = shape_of(input);
  if (!is_one_of(node.integer("axis", -1), {-1, 1}) || (shape && shape->rank() != 1)) {
    throw Unsupported{node.place, "only the last axis of [N, F] is supported"};
  }
  set_output(node, LayerValue{input});
}

// --- Shapes.

void Operators::global_average_pool(const NodeView& node) {
  const int input = layer_of(node, node.input(0));
  LayerConfig config;
  config.mutable_global_pool();
  set_output(node, LayerValue{add_layer(node, std::move(config), {input})});
}

void Operators::add_flatten(const NodeView& node, int input) {
  LayerConfig config;
  config.mutable_flatten();
  set_output(node, LayerValue{add_layer(node, std::move(config), {input})});
}

// The mean over height and width becomes global pooling.
void Operators::reduce_mean(const NodeView& node) {
  const int input = layer_of(node, node.input(0));
  std::vector<int64_t> axes = node.integers("axes");
  if (node.has_input(1)) axes = integers(node, node.input(1));
  const std::optional<Shape> shape = shape_of(input);
  bool over_both = axes.size() == 2 && (!shape || shape->rank() == 3);
  for (const int64_t axis : axes) over_both = over_both && is_one_of(axis, {2, 3, -1, -2});
  if (!over_both || (axes[0] - axes[1]) % 4 == 0) {
    throw Unsupported{node.place, "only the mean over height and width is supported"};
  }
  LayerConfig config;
  config.mutable_global_pool();
  const int layer = add_layer(node, std::move(config), {input});
  if (node.integer("keepdims", 1) != 0) return set_output(node, LayerValue{layer});
  add_flatten(node, layer);
}

void Operators::flatten(const NodeView& node) {
  const int input = layer_of(node, node.input(0));
  if (node.integer("axis", 1) != 1) throw Unsupported{node.place, "only axis 1 is supported"};
  add_flatten(node, input);
}

// A reshape that flattens, in any form that exporters write; one that has no effect; or one to or
// from groups of channels.
void Operators::reshape(const NodeView& node) {
  std::vector<int64_t> to =
      node.has_input(1) ? integers(node, node.input(1)) : node.integers("shape");
  if (from_groups(node, to)) return;
  const int input = layer_of(node, node.input(0));
  const std::optional<Shape> from = shape_of(input);
  const auto throw_unsupported = [&] {
    throw Unsupported{node.place,
                      fmt::format("from {} to [{}] is not supported",
                                  from ? from->to_string() : "[?]", fmt::join(to, ", "))};
  };
  if (to.size() < 2) throw_unsupported();
  const bool copies = node.integer("allowzero", 0) == 0;
  const auto is_batch = [&](int64_t extent) {
    return extent == IntegersValue::kBatch || extent == batch_ || (copies && extent == 0);
  };
  const bool open = to[0] == -1;
  if (!open && !is_batch(to[0])) throw_unsupported();
  if (to.size() == 2) {
    const bool rest = to[1] == -1 && !open;
    const bool all = to[1] > 0 && (!from || from->elements() == to[1]);
    if (!rest && !all) throw_unsupported();
    return add_flatten(node, input);
  }
  to.erase(to.begin());
  if (const auto groups = groups_of(input, to); groups && !open) {
    return set_output(node, GroupedValue{input, *groups});
  }
  if (!from || from->rank() != static_cast<int>(to.size())) throw_unsupported();
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i] != (*from)[static_cast<int>(i)] && !(to[i] == -1 && !open)) throw_unsupported();
  }
  set_output(node, LayerValue{input});
}

// Returns the number of groups if `to` is [groups, rest] and divides the channels of the input into
// groups, and is not the shape of the input itself.
std::optional<int64_t> Operators::groups_of(int input, std::span<const int64_t> to) const {
  const std::optional<Shape> from = shape_of(input);
  if (!from || to.size() != 2 || to[0] < 1 || (*from)[0] % to[0] != 0) return std::nullopt;
  if (from->rank() == 2 && to[0] == (*from)[0]) return std::nullopt;
  if (to[1] != -1 && to[1] != from->elements() / to[0]) return std::nullopt;
  return to[0];
}

// Imports a reshape of channels in groups back to their original shape. Returns false if the input
// is not in groups.
bool Operators::from_groups(const NodeView& node, std::span<const int64_t> to) {
  const auto* of = std::get_if<GroupedValue>(&value(node.input(0)));
  if (!of) return false;
  const std::optional<Shape> shape = shape_of(of->layer);
  bool same = shape && static_cast<int>(to.size()) == shape->rank() + 1;
  for (int i = 0; same && i < shape->rank(); ++i) {
    const int64_t extent = to[static_cast<size_t>(i) + 1];
    same = extent == (*shape)[i] || extent == -1;
  }
  if (!same) {
    throw Unsupported{node.place,
                      "channels in groups can only be reshaped to their original shape"};
  }
  if (of->layer != LayerValue::kInput) layers_[of->layer].node = node.place;
  set_output(node, LayerValue{of->layer});
  return true;
}

void Operators::squeeze(const NodeView& node) {
  if (std::holds_alternative<IntegersValue>(value(node.input(0)))) return identity(node);
  const int input = layer_of(node, node.input(0));
  std::vector<int64_t> axes = node.integers("axes");
  if (node.has_input(1)) axes = integers(node, node.input(1));
  const std::optional<Shape> shape = shape_of(input);
  bool all = shape && shape->rank() == 3 && shape->elements() == (*shape)[0] && axes.size() == 2;
  for (const int64_t axis : axes) all = all && is_one_of(axis, {2, 3, -1, -2});
  if (!all) throw Unsupported{node.place, "the result must be [N, F]"};
  add_flatten(node, input);
}

void Operators::concat(const NodeView& node) {
  std::vector<int64_t> numbers;
  std::vector<int> inputs;
  for (int i = 0; i < node.inputs(); ++i) {
    const Value& of = value(node.input(i));
    if (std::holds_alternative<IntegersValue>(of) || std::holds_alternative<TensorValue>(of)) {
      const std::vector<int64_t> more = integers(node, node.input(i));
      numbers.insert(numbers.end(), more.begin(), more.end());
    } else {
      inputs.push_back(layer_of(node, node.input(i)));
    }
  }
  if (inputs.empty() && !numbers.empty() && numbers.size() <= Shape::kMaxRank) {
    return set_output(node, IntegersValue{numbers});
  }
  if (!numbers.empty() || inputs.empty()) {
    throw Unsupported{node.place, "constants are not supported"};
  }
  const std::optional<Shape> shape = shape_of(inputs[0]);
  const int64_t from_the_end = shape ? -shape->rank() : -3;
  if (!is_one_of(node.integer("axis", 0), {1, from_the_end})) {
    throw Unsupported{node.place, "only axis 1 is supported"};
  }
  LayerConfig config;
  config.mutable_concat();
  set_output(node, LayerValue{add_layer(node, std::move(config), std::move(inputs))});
}

// --- Constants and shapes.

void Operators::identity(const NodeView& node) {
  Value same = value(node.input(0));
  set_output(node, std::move(same));
}

// Values are f32 whatever their type in the file.
void Operators::cast(const NodeView& node) { identity(node); }

void Operators::constant(const NodeView& node) {
  TensorProto tensor;
  if (const AttributeProto* given = node.find("value")) {
    tensor = given->t();
  } else if (const AttributeProto* number = node.find("value_float")) {
    tensor.set_data_type(TensorProto::FLOAT);
    tensor.add_float_data(number->f());
  } else if (const AttributeProto* integer = node.find("value_int")) {
    tensor.set_data_type(TensorProto::INT64);
    tensor.add_int64_data(integer->i());
  } else if (const AttributeProto* list = node.find("value_ints")) {
    tensor.set_data_type(TensorProto::INT64);
    tensor.add_dims(list->ints_size());
    *tensor.mutable_int64_data() = list->ints();
  } else if (const AttributeProto* floats = node.find("value_floats")) {
    tensor.set_data_type(TensorProto::FLOAT);
    tensor.add_dims(floats->floats_size());
    *tensor.mutable_float_data() = floats->floats();
  } else {
    throw Unsupported{node.place, "it contains no numbers"};
  }
  set_output(node, TensorValue{&store_constant(std::move(tensor))});
}

void Operators::shape(const NodeView& node) {
  const int input = layer_of(node, node.input(0));
  const std::optional<Shape> known = shape_of(input);
  if (!known) throw Unsupported{node.place, "the shape of the input is unknown"};
  IntegersValue extents{{batch_}};
  extents.values.insert(extents.values.end(), known->begin(), known->end());
  set_output(node, extents);
}

void Operators::gather(const NodeView& node) {
  const std::vector<int64_t> from = integers(node, node.input(0));
  IntegersValue picked;
  for (const int64_t at : integers(node, node.input(1))) {
    const int64_t index = at < 0 ? at + static_cast<int64_t>(from.size()) : at;
    if (index < 0 || index >= static_cast<int64_t>(from.size())) {
      throw_damaged(fmt::format("an index of '{}' is out of range", node.name()));
    }
    picked.values.push_back(from[index]);
  }
  set_output(node, picked);
}

// Numbers of a shape are always lists, so nothing changes.
void Operators::unsqueeze(const NodeView& node) {
  set_output(node, IntegersValue{integers(node, node.input(0))});
}

}  // namespace

std::unique_ptr<Importer> make_importer(const ModelProto& model,
                                        const std::filesystem::path& path) {
  return std::make_unique<Operators>(model, path);
}

}  // namespace trireme::model::onnx
