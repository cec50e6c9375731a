// ONNX operators that change the shape of layers' outputs.
#include <fmt/format.h>

#include <algorithm>

#include "model/onnx/operators.h"

namespace trireme::model::onnx {

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

// The weight of a dense layer that reads a sequence.
void Operators::transpose(const NodeView& node) {
  const bool swaps = node.integers("perm") == std::vector<int64_t>{1, 0};
  if (!is_tensor(node.input(0)) || !swaps) {
    throw Unsupported{node.place, "only constants of two dimensions can be transposed"};
  }
  set_output(node, TransposedValue{node.input(0)});
}

}  // namespace trireme::model::onnx
