// Adds operators and constants to an ONNX model.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "core/shape.h"
#include "model/onnx/onnx.pb.h"

namespace trireme::model::onnx {

// ModelProto::producer_name of exported files, and the names of the operators with which they
// normalize the input. The constant of each is called NAME.value.
inline constexpr const char* kProducer = "trireme";
inline constexpr const char* kNormalizeScale = "normalize.scale";
inline constexpr const char* kNormalizeMean = "normalize.mean";
inline constexpr const char* kNormalizeStddev = "normalize.stddev";

void set_attribute(NodeProto& node, const char* name, int64_t value);
void set_attribute(NodeProto& node, const char* name, float value);
void set_attribute(NodeProto& node, const char* name, const std::vector<int64_t>& values);
void set_attribute(NodeProto& node, const char* name, const std::string& text);

class ModelWriter {
 public:
  ModelProto& model() { return model_; }
  GraphProto& graph() { return *model_.mutable_graph(); }

  // Adds an operator with one output, `name`.output.
  NodeProto& add(const char* op, const std::string& name, const std::vector<std::string>& inputs);
  // Likewise, and returns the name of the output.
  std::string result(const char* op, const std::string& name,
                     const std::vector<std::string>& inputs) {
    return add(op, name, inputs).output(0);
  }

  // Add a constant, unless there is one of this name, and return its name.
  std::string floats(const std::string& name, const Shape& shape, const std::vector<float>& values);
  std::string integers(const std::string& name, const std::vector<int64_t>& values);
  std::string integer(const std::string& name, int64_t value);  // a scalar

 private:
  // Returns null if there is a constant of this name.
  TensorProto* new_constant(const std::string& name);

  ModelProto model_;
  std::set<std::string> constants_;
};

}  // namespace trireme::model::onnx
