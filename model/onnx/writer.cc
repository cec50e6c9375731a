#include "model/onnx/writer.h"

#include "model/onnx/tensors.h"

namespace trireme::model::onnx {

void set_attribute(NodeProto& node, const char* name, int64_t value) {
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(AttributeProto::INT);
  attribute.set_i(value);
}

void set_attribute(NodeProto& node, const char* name, float value) {
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(AttributeProto::FLOAT);
  attribute.set_f(value);
}

void set_attribute(NodeProto& node, const char* name, const std::vector<int64_t>& values) {
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(AttributeProto::INTS);
  for (const int64_t value : values) attribute.add_ints(value);
}

void set_attribute(NodeProto& node, const char* name, const std::string& text) {
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(AttributeProto::STRING);
  attribute.set_s(text);
}

NodeProto& ModelWriter::add(const char* op, const std::string& name,
                            const std::vector<std::string>& inputs) {
  NodeProto& node = *graph().add_node();
  node.set_op_type(op);
  node.set_name(name);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(name + ".output");
  return node;
}

TensorProto* ModelWriter::new_constant(const std::string& name) {
  return constants_.insert(name).second ? graph().add_initializer() : nullptr;
}

std::string ModelWriter::floats(const std::string& name, const Shape& shape,
                                const std::vector<float>& values) {
  if (TensorProto* tensor = new_constant(name)) write_tensor(name, shape, values, *tensor);
  return name;
}

std::string ModelWriter::integers(const std::string& name, const std::vector<int64_t>& values) {
  if (TensorProto* tensor = new_constant(name)) {
    tensor->set_name(name);
    tensor->set_data_type(TensorProto::INT64);
    tensor->add_dims(static_cast<int64_t>(values.size()));
    for (const int64_t value : values) tensor->add_int64_data(value);
  }
  return name;
}

std::string ModelWriter::integer(const std::string& name, int64_t value) {
  if (TensorProto* tensor = new_constant(name)) {
    tensor->set_name(name);
    tensor->set_data_type(TensorProto::INT64);
    tensor->add_int64_data(value);
  }
  return name;
}

}  // namespace trireme::model::onnx
