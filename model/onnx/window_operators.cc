// ONNX operators with windows: convolutions and pooling.
#include <fmt/format.h>

#include <algorithm>

#include "model/onnx/operators.h"

namespace trireme::model::onnx {
namespace {

constexpr int64_t kMaxOnnxWindow = 1 << 16;

// Sets a field to height and width: one number if they are equal, none if they are the default.
void set_sides(google::protobuf::RepeatedField<int64_t>& field, const Pair& pair,
               const Pair& unset) {
  if (pair == unset) return;
  field.Add(pair[0]);
  if (pair[1] != pair[0]) field.Add(pair[1]);
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

}  // namespace

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
  add_parameter(node, layer, "weight", node.input(1), Shape(dims));
  if (node.has_input(2)) add_parameter(node, layer, "bias", node.input(2), {dims[0]});
  set_output(node, LayerValue{layer});
}

}  // namespace trireme::model::onnx
