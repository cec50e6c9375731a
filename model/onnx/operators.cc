// The table of the ONNX operators that are supported, and those on constants and shapes.
#include "model/onnx/operators.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::model::onnx {

Importer::Handler Operators::handler(std::string_view op) const {
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
      {"Transpose", &Operators::transpose},
      {"Unsqueeze", &Operators::unsqueeze},
  };
  const auto found = all.find(op);
  return found == all.end() ? nullptr : static_cast<Handler>(found->second);
}

// PyTorch's TorchScript exporter stores parameters that are equal only once. Those that are
// different ones in the module are the outputs of Identity, under their own names.
void Operators::identity(const NodeView& node) {
  Value same = value(node.input(0));
  auto* tensor = std::get_if<TensorValue>(&same);
  if (tensor && node.op() == "Identity" && model_.producer_name() == "pytorch") {
    tensor->name = node.output();
  }
  set_output(node, std::move(same));
}

// Values are f32 whatever their type in the file. Converting those of a layer to integers would
// round them.
void Operators::cast(const NodeView& node) {
  const auto to = static_cast<int32_t>(node.integer("to", TensorProto::FLOAT));
  const bool is_float = is_one_of(
      to, {TensorProto::FLOAT, TensorProto::FLOAT16, TensorProto::BFLOAT16, TensorProto::DOUBLE});
  const Value& from = value(node.input(0));
  const auto* layer = std::get_if<LayerValue>(&from);
  const bool is_input =
      std::holds_alternative<InputValue>(from) || (layer && layer->layer == LayerValue::kInput);
  const bool is_activation = layer || is_input || std::holds_alternative<FunctionValue>(from) ||
                             std::holds_alternative<GroupedValue>(from);
  if (!is_float && is_activation && !(is_input && reads_tokens_)) {
    throw Unsupported{node.place, "it converts numbers of the network to integers"};
  }
  identity(node);
}

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
  set_output(node, TensorValue{&store_constant(std::move(tensor)), node.output(), /*fixed=*/true});
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
  const auto* table = std::get_if<TensorValue>(&value(node.input(0)));
  if (table && table->tensor->data_type() == TensorProto::FLOAT) {
    throw Unsupported{node.place, "a table that anything but the tokens of the input looks up"};
  }
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

std::unique_ptr<Importer> make_importer(const ModelProto& model,
                                        const std::filesystem::path& path) {
  return std::make_unique<Operators>(model, path);
}

}  // namespace trireme::model::onnx
