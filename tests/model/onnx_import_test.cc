// Imports models as written by other programs.
#include <fmt/format.h>

#include <bit>
#include <utility>

#include "model/onnx/onnx.h"
#include "model/onnx/onnx.pb.h"
#include "tests/model/onnx_files.h"

namespace trireme::model {
namespace {

using onnx::TensorProto;

class Model {
 public:
  explicit Model(const Shape& input, const std::string& output = "y") {
    proto.add_opset_import()->set_version(17);
    onnx::ValueInfoProto& info = *proto.mutable_graph()->add_input();
    info.set_name("x");
    auto& shape = *info.mutable_type()->mutable_tensor_type()->mutable_shape();
    shape.add_dim()->set_dim_param("batch");
    for (const int64_t extent : input) shape.add_dim()->set_dim_value(extent);
    proto.mutable_graph()->add_output()->set_name(output);
  }
  onnx::NodeProto& node(const char* op, std::initializer_list<const char*> inputs,
                        const char* output) {
    onnx::NodeProto& node = *proto.mutable_graph()->add_node();
    node.set_op_type(op);
    node.set_name(std::string("/scope/scope.1/") + op);
    for (const char* input : inputs) node.add_input(input);
    node.add_output(output);
    return node;
  }
  TensorProto& floats(const std::string& name, std::vector<int64_t> dims,
                      const std::vector<float>& values) {
    TensorProto& tensor = add(name, dims, TensorProto::FLOAT);
    for (const float value : values) tensor.add_float_data(value);
    return tensor;
  }
  TensorProto& integers(const std::string& name, const std::vector<int64_t>& values) {
    TensorProto& tensor = add(name, {static_cast<int64_t>(values.size())}, TensorProto::INT64);
    for (const int64_t value : values) tensor.add_int64_data(value);
    return tensor;
  }
  OnnxModel read() const { return read_onnx(file_of(proto.SerializeAsString())); }

  onnx::ModelProto proto;

 private:
  TensorProto& add(const std::string& name, const std::vector<int64_t>& dims,
                   TensorProto::DataType type) {
    TensorProto& tensor = *proto.mutable_graph()->add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(type);
    for (const int64_t extent : dims) tensor.add_dims(extent);
    return tensor;
  }
};

void set_attribute(onnx::NodeProto& node, const char* name, std::vector<int64_t> values) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  for (const int64_t value : values) attribute.add_ints(value);
  if (values.size() == 1) attribute.set_i(values[0]);
}

TEST(OnnxImport, ListsUnsupportedOperators) {
  Model model({3, 8, 8});
  model.node("HardSigmoid", {"x"}, "a");
  model.node("Clip", {"a"}, "b");
  model.node("Conv", {"b", "w"}, "c");
  set_attribute(model.node("Flatten", {"c"}, "y"), "axis", {2});
  model.node("Loop", {"c"}, "that nobody reads");
  const std::string message = error_message<ConfigError>([&] { model.read(); });
  expect_words(message, {"model.onnx", "HardSigmoid (node '/scope/scope.1/HardSigmoid')"});
  expect_words(message, {"Clip (node '/scope/scope.1/Clip')"});
  EXPECT_EQ(message.find("Loop"), std::string::npos) << message;
  // Operators that depend on an unsupported one are not reported.
  EXPECT_EQ(message.find("Conv"), std::string::npos) << message;

  Model branches({3, 8, 8});
  branches.node("HardSigmoid", {"x"}, "a");
  branches.node("Clip", {"x"}, "b");
  branches.node("Add", {"a", "b"}, "y");
  expect_words(error_message<ConfigError>([&] { branches.read(); }), {"HardSigmoid", "Clip"});
}

// A valid file with a table was "damaged", and its other operators were not listed.
TEST(OnnxImport, ListsTablesWithOtherUnsupportedOperators) {
  Model model({4});
  set_attribute(model.node("Cast", {"x"}, "i"), "to", {TensorProto::INT64});
  model.node("Gather", {"table", "i"}, "g");
  model.floats("table", {10, 2}, std::vector<float>(20));
  model.node("Clip", {"g"}, "c");
  model.node("Flatten", {"c"}, "f");
  model.node("HardSwish", {"f"}, "y");
  const std::string message = error_message<ConfigError>([&] { model.read(); });
  expect_words(message, {"Cast (node", "Gather (node", "Clip (node", "HardSwish (node"});
}

TEST(OnnxImport, ExplainsWhyAnOperatorIsUnsupported) {
  const auto conv = [](const char* attribute, std::vector<int64_t> values) {
    Model model({1, 6, 6});
    set_attribute(model.node("Conv", {"x", "w"}, "y"), attribute, std::move(values));
    model.floats("w", {2, 1, 3, 3}, std::vector<float>(18));
    return error_message<ConfigError>([&] { model.read(); });
  };
  expect_words(conv("pads", {0, 0, 1, 1}), {"Conv", "padding"});
  expect_words(conv("strides", {0, 1}), {"strides", "0"});
  expect_words(conv("dilations", {9, 9}), {"kernel spans"});
  Model max({1, 6, 6});
  onnx::NodeProto& pool = max.node("MaxPool", {"x"}, "y");
  set_attribute(pool, "kernel_shape", {3, 3});
  set_attribute(pool, "strides", {2, 2});
  set_attribute(pool, "ceil_mode", {1});
  expect_words(error_message<ConfigError>([&] { max.read(); }), {"MaxPool", "ceil_mode"});
}

// Group norm as PyTorch writes it before opset 21: groups as channels of an InstanceNormalization,
// a reshape to the original shape, then scale and shift.
TEST(OnnxImport, ReadsGroupNorm) {
  Model model({4, 2, 3});
  model.integers("groups", {0, 2, -1});
  model.floats("ones", {2}, {1, 1});
  model.floats("zeros", {2}, {0, 0});
  model.floats("scale", {4, 1, 1}, {1, 2, 3, 4});
  model.floats("shift", {4, 1, 1}, {5, 6, 7, 8});
  model.node("Reshape", {"x", "groups"}, "rows");
  onnx::AttributeProto& epsilon =
      *model.node("InstanceNormalization", {"rows", "ones", "zeros"}, "normed").add_attribute();
  epsilon.set_name("epsilon");
  epsilon.set_f(0.5F);
  model.node("Shape", {"x"}, "shape");
  model.node("Reshape", {"normed", "shape"}, "whole");
  model.node("Mul", {"whole", "scale"}, "scaled");
  model.node("Add", {"scaled", "shift"}, "shifted");
  model.node("Relu", {"shifted"}, "relu");
  model.node("Flatten", {"relu"}, "y");
  const OnnxModel read = model.read();
  EXPECT_EQ(kinds_of(read), (Kinds{"group_norm", "relu", "flatten", "softmax_cross_entropy"}));
  const LayerConfig& layer = read.network.layer(0);
  EXPECT_EQ(layer.group_norm().num_groups(), 2);
  EXPECT_EQ(layer.group_norm().epsilon(), 0.5F);
  EXPECT_TRUE(layer.group_norm().affine());
  EXPECT_EQ(read.weights.at(layer.name() + ".weight").values, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(read.weights.at(layer.name() + ".bias").values, (std::vector<float>{5, 6, 7, 8}));
  EXPECT_EQ(read.weights.size(), 2u);
}

TEST(OnnxImport, ReadsGroupNormalization) {
  const auto read = [](const std::vector<float>& scale) {
    Model model({4, 2, 3});
    const auto count = static_cast<int64_t>(scale.size());
    model.floats("gn.weight", {count}, scale);
    model.floats("gn.bias", {count}, std::vector<float>(scale.size(), 0.5F));
    set_attribute(model.node("GroupNormalization", {"x", "gn.weight", "gn.bias"}, "a"),
                  "num_groups", {2});
    model.node("Flatten", {"a"}, "y");
    return model.read();
  };
  const OnnxModel now = read({1, 2, 3, 4});
  EXPECT_EQ(now.network.layer(0).group_norm().num_groups(), 2);
  EXPECT_EQ(now.weights.at("gn.weight").values, (std::vector<float>{1, 2, 3, 4}));
  // The number of a group, repeated for each channel, would be trained as several.
  expect_words(error_message<ConfigError>([&] {
                 read({1, 2});
               }),
               {"GroupNormalization", "a scale for each group"});
  expect_words(error_message<DataError>([&] {
                 read({1, 2, 3});
               }),
               {"gn.weight", "[4]", "3 values"});
}

TEST(OnnxImport, ExplainsWhyChannelsInGroupsAreUnsupported) {
  const auto message = [](const char* op, std::vector<float> scale, std::vector<int64_t> back) {
    Model model({4, 2, 3});
    model.integers("groups", {0, 2, -1});
    model.integers("back", back);
    model.floats("scale", {2}, scale);
    model.floats("zeros", {2}, {0, 0});
    model.node("Reshape", {"x", "groups"}, "rows");
    model.node(op, {"rows", "scale", "zeros"}, "normed");
    model.node("Reshape", {"normed", "back"}, "whole");
    model.node("Flatten", {"whole"}, "y");
    return error_message<ConfigError>([&] { model.read(); });
  };
  expect_words(message("Relu", {1, 1}, {0, 4, 2, 3}), {"Relu", "channels in groups"});
  expect_words(message("InstanceNormalization", {1, 2}, {0, 4, 2, 3}),
               {"InstanceNormalization", "a scale or a shift for each group"});
  expect_words(message("InstanceNormalization", {1, 1}, {0, 4, 3, 2}),
               {"Reshape", "only be reshaped to their original shape"});
}

// A formula is recognized by the values that it computes, not by its form.
TEST(OnnxImport, RecognizesActivationsByTheirValues) {
  using Build = std::function<void(Model&)>;
  const std::pair<const char*, Build> formulas[] = {
      {"gelu",
       [](Model& m) {  // as PyTorch writes it
         m.floats("sqrt2", {}, {1.41421354F});
         m.floats("one", {}, {1});
         m.floats("half", {}, {0.5F});
         m.node("Div", {"h", "sqrt2"}, "1");
         m.node("Erf", {"1"}, "2");
         m.node("Add", {"2", "one"}, "3");
         m.node("Mul", {"h", "3"}, "4");
         m.node("Mul", {"4", "half"}, "y");
       }},
      {"gelu",
       [](Model& m) {
         m.floats("sqrt2", {1}, {1.41421354F});
         m.floats("one", {1}, {1});
         m.floats("half", {1}, {0.5F});
         m.node("Mul", {"half", "h"}, "0");
         m.node("Div", {"h", "sqrt2"}, "1");
         m.node("Erf", {"1"}, "2");
         m.node("Add", {"one", "2"}, "3");
         m.node("Mul", {"3", "0"}, "y");
       }},
      {"gelu_tanh",
       [](Model& m) {
         m.floats("three", {}, {3});
         m.floats("a", {}, {0.044715F});
         m.floats("b", {}, {0.797884583F});
         m.floats("one", {}, {1});
         m.floats("half", {}, {0.5F});
         m.node("Pow", {"h", "three"}, "1");
         m.node("Mul", {"1", "a"}, "2");
         m.node("Add", {"h", "2"}, "3");
         m.node("Mul", {"3", "b"}, "4");
         m.node("Tanh", {"4"}, "5");
         m.node("Add", {"5", "one"}, "6");
         m.node("Mul", {"h", "half"}, "7");
         m.node("Mul", {"7", "6"}, "y");
       }},
      {"silu",
       [](Model& m) {
         m.floats("one", {}, {1});
         m.node("Neg", {"h"}, "1");
         m.node("Exp", {"1"}, "2");
         m.node("Add", {"2", "one"}, "3");
         m.node("Div", {"h", "3"}, "y");
       }},
      {"gelu", [](Model& m) { m.node("Gelu", {"h"}, "y"); }},
      {"sigmoid", [](Model& m) { m.node("Sigmoid", {"h"}, "y"); }},
  };
  for (const auto& [kind, build] : formulas) {
    Model model({4});
    model.node("Gemm", {"x", "fc.weight"}, "h");
    model.floats("fc.weight", {4, 2}, std::vector<float>(8));
    build(model);
    EXPECT_EQ(kinds_of(model.read()), (Kinds{"dense", kind, "softmax_cross_entropy"}));
  }
  Model steeper({4});
  steeper.node("Gemm", {"x", "fc.weight"}, "h");
  steeper.floats("fc.weight", {4, 2}, std::vector<float>(8));
  steeper.floats("k", {}, {1.702F});
  steeper.node("Mul", {"h", "k"}, "1");
  steeper.node("Sigmoid", {"1"}, "2");
  steeper.node("Mul", {"h", "2"}, "y");
  expect_words(error_message<ConfigError>([&] { steeper.read(); }), {"Mul", "activation"});
}

TEST(OnnxImport, RecognizesAnActivationOfAnActivation) {
  Model model({4});
  model.floats("fc.weight", {4, 2}, std::vector<float>(8));
  model.node("Tanh", {"x"}, "t");
  model.node("Sigmoid", {"t"}, "s");
  model.node("Mul", {"t", "s"}, "a");
  model.node("Sigmoid", {"a"}, "b");
  model.node("Mul", {"a", "b"}, "h");
  model.node("Gemm", {"h", "fc.weight"}, "y");
  EXPECT_EQ(kinds_of(model.read()),
            (Kinds{"tanh", "silu", "silu", "dense", "softmax_cross_entropy"}));
}

// The residual sum could be part of an activation's formula.
TEST(OnnxImport, DistinguishesSumsFromActivations) {
  Model model({4});
  model.node("MatMul", {"x", "w"}, "product");
  model.floats("w", {4, 4}, std::vector<float>(16));
  model.node("Add", {"product", "fc.bias"}, "h");
  model.floats("fc.bias", {4}, {1, 2, 3, 4});
  model.node("Relu", {"h"}, "r");
  model.node("Tanh", {"r"}, "t");
  model.node("Add", {"t", "h"}, "s");
  model.node("Relu", {"s"}, "y");
  const OnnxModel read = model.read();
  EXPECT_EQ(kinds_of(read),
            (Kinds{"dense", "relu", "tanh", "add", "relu", "softmax_cross_entropy"}));
  EXPECT_EQ(read.weights.at("scope.1.bias").values, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(read.network.layer(3).input(1), "scope.1");
}

TEST(OnnxImport, RecognizesEveryFormOfFlatten) {
  const std::pair<const char*, std::function<void(Model&)>> ways[] = {
      {"view(x.size(0), -1)",
       [](Model& m) {
         m.node("Shape", {"h"}, "s");
         m.integers("zero", {0}).clear_dims();
         m.integers("minus", {-1});
         m.integers("axes", {0});
         m.node("Gather", {"s", "zero"}, "n");
         m.node("Unsqueeze", {"n", "axes"}, "n1");
         m.node("Concat", {"n1", "minus"}, "to");
         m.node("Reshape", {"h", "to"}, "y");
       }},
      {"[-1, 18]",
       [](Model& m) {
         m.integers("to", {-1, 18});
         m.node("Reshape", {"h", "to"}, "y");
       }},
      {"[0, -1]",
       [](Model& m) {
         m.integers("to", {0, -1});
         m.node("Reshape", {"h", "to"}, "y");
       }},
      {"Flatten", [](Model& m) { m.node("Flatten", {"h"}, "y"); }},
  };
  for (const auto& [name, build] : ways) {
    SCOPED_TRACE(name);
    Model model({1, 5, 5});
    model.node("Conv", {"x", "c.weight"}, "h");
    model.floats("c.weight", {2, 1, 3, 3}, std::vector<float>(18));
    build(model);
    const OnnxModel read = model.read();
    EXPECT_EQ(kinds_of(read), (Kinds{"conv2d", "flatten", "softmax_cross_entropy"}));
    EXPECT_EQ(read.outputs, 18);
  }
  Model means({4, 5, 5});
  means.integers("axes", {-1, -2});
  means.node("Relu", {"x"}, "h");
  set_attribute(means.node("ReduceMean", {"h", "axes"}, "y"), "keepdims", {0});
  EXPECT_EQ(kinds_of(means.read()),
            (Kinds{"relu", "global_pool", "flatten", "softmax_cross_entropy"}));
}

TEST(OnnxImport, ReadsValuesOfEveryType) {
  const std::vector<float> wanted{1.5F, -2, 0.25F, 0};
  const auto read = [&](const std::function<void(TensorProto&)>& fill) {
    Model model({2});
    model.node("Gemm", {"x", "fc.weight"}, "y");
    TensorProto& tensor = model.floats("fc.weight", {2, 2}, {});
    fill(tensor);
    return model.read().weights.at("fc.weight").values;
  };
  // Without transB, the weight of Gemm is [inputs, units].
  const std::vector<float> transposed{wanted[0], wanted[2], wanted[1], wanted[3]};
  const auto raw = [&](TensorProto& tensor, auto convert) {
    for (const float value : wanted) {
      const auto stored = convert(value);
      tensor.mutable_raw_data()->append(reinterpret_cast<const char*>(&stored), sizeof stored);
    }
  };
  EXPECT_EQ(read([&](TensorProto& t) { raw(t, [](float v) { return v; }); }), transposed);
  EXPECT_EQ(read([&](TensorProto& t) {
              t.set_data_type(TensorProto::DOUBLE);
              raw(t, [](float v) { return double{v}; });
            }),
            transposed);
  EXPECT_EQ(read([&](TensorProto& t) {
              t.set_data_type(TensorProto::BFLOAT16);
              raw(t,
                  [](float v) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16); });
            }),
            transposed);
  EXPECT_EQ(read([](TensorProto& t) {
              t.set_data_type(TensorProto::FLOAT16);
              for (const int bits : {0x3E00, 0xC000, 0x3400, 0}) t.add_int32_data(bits);
            }),
            transposed);
  EXPECT_EQ(read([&](TensorProto& t) {
              t.set_data_type(TensorProto::DOUBLE);
              for (const float value : wanted) t.add_double_data(value);
            }),
            transposed);
  EXPECT_EQ(
      read([&](TensorProto& t) {
        std::string bytes = "12345678";
        bytes.append(reinterpret_cast<const char*>(wanted.data()), 16);
        file_of(bytes, "values.bin");
        t.set_data_location(TensorProto::EXTERNAL);
        for (const auto& [key, value] : {std::pair{"location", "values.bin"},
                                         std::pair{"offset", "8"}, std::pair{"length", "16"}}) {
          onnx::StringStringEntryProto& entry = *t.add_external_data();
          entry.set_key(key);
          entry.set_value(value);
        }
      }),
      transposed);
}

std::string damage(const std::function<void(TensorProto&)>& modify) {
  Model model({2});
  model.node("Gemm", {"x", "fc.weight"}, "y");
  modify(model.floats("fc.weight", {2, 2}, {1, 2, 3, 4}));
  return error_message<DataError>([&] { model.read(); });
}

TEST(OnnxImport, RejectsDamagedValuesBeforeAllocating) {
  expect_words(damage([](TensorProto& t) { t.add_float_data(5); }), {"fc.weight", "4", "5"});
  expect_words(damage([](TensorProto& t) { t.set_dims(1, int64_t{1} << 36); }), {"more values"});
  expect_words(damage([](TensorProto& t) { t.set_dims(0, -2); }), {"fc.weight", "-2"});
  expect_words(damage([](TensorProto& t) { t.set_data_type(4); }), {"fc.weight", "data_type 4"});
  expect_words(damage([](TensorProto& t) {
                 t.set_data_location(TensorProto::EXTERNAL);
                 onnx::StringStringEntryProto& entry = *t.add_external_data();
                 entry.set_key("location");
                 entry.set_value("../elsewhere");
               }),
               {"../elsewhere", "outside the folder"});
  expect_words(damage([](TensorProto& t) {
                 t.set_data_location(TensorProto::EXTERNAL);
                 onnx::StringStringEntryProto& entry = *t.add_external_data();
                 entry.set_key("location");
                 entry.set_value(std::string("model.onnx\0.bin", 15));
               }),
               {"model.onnx\\x00.bin", "NUL"});
  expect_words(damage([](TensorProto& t) {
                 t.set_data_location(TensorProto::EXTERNAL);
                 onnx::StringStringEntryProto& entry = *t.add_external_data();
                 entry.set_key("location");
                 entry.set_value("model.onnx");
                 onnx::StringStringEntryProto& offset = *t.add_external_data();
                 offset.set_key("offset");
                 offset.set_value("18446744073709551610");
               }),
               {"fc.weight", "18446744073709551610"});
  for (const char* length : {"15", "abc"}) {
    expect_words(damage([&](TensorProto& t) {
                   t.set_data_location(TensorProto::EXTERNAL);
                   for (const auto& [key, value] :
                        {std::pair{"location", "model.onnx"}, std::pair{"length", length}}) {
                     onnx::StringStringEntryProto& entry = *t.add_external_data();
                     entry.set_key(key);
                     entry.set_value(value);
                   }
                 }),
                 {"fc.weight", "length", length});
  }
}

TEST(OnnxImport, RejectsTwoTensorsOfOneName) {
  Model model({2});
  model.node("Gemm", {"x", "w"}, "y");
  model.floats("w", {2, 2}, {1, 2, 3, 4});
  model.floats("w", {2, 2}, {5, 6, 7, 8});
  expect_words(error_message<DataError>([&] { model.read(); }), {"two tensors", "'w'"});
}

TEST(OnnxImport, RejectsOutputsWithoutAnInput) {
  Model model({2});
  model.node("Gemm", {"nothing", "w"}, "y");
  model.floats("w", {2, 2}, {1, 2, 3, 4});
  expect_words(error_message<ConfigError>([&] { model.read(); }),
               {"'y', that does not depend on an input"});
}

TEST(OnnxImport, NamesOfLayersCannotControlTheTerminal) {
  Model model({2});
  model.node("Gemm", {"x", "\x1b[2J\nwarning: fire.weight"}, "y");
  model.floats("\x1b[2J\nwarning: fire.weight", {2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(model.read().network.layer(0).name(), "\\x1b[2J\\nwarning: fire");
}

TEST(OnnxImport, ConversionToIntegersIsNotSupported) {
  const auto cast = [](const char* before, int64_t type) {
    Model model({2});
    model.node(before, {"x"}, "h");
    set_attribute(model.node("Cast", {"h"}, "cast"), "to", {type});
    model.node("Gemm", {"cast", "w"}, "y");
    model.floats("w", {2, 2}, {1, 2, 3, 4});
    return error_message<ConfigError>([&] { model.read(); });
  };
  for (const char* before : {"Identity", "Tanh"}) {
    for (const int64_t type : {6, 9}) {  // INT32, BOOL
      expect_words(cast(before, type), {"Cast", "to integers"});
    }
    EXPECT_EQ(cast(before, TensorProto::FLOAT16), "accepted");
  }
}

// A chain of nodes that each read the constants.
Model chain(const char* op, std::vector<const char*> constants, int64_t width, int count) {
  Model model({width}, fmt::format("h{}", count));
  std::string before = "x";
  for (int i = 0; i <= count; ++i) {
    const std::string next = fmt::format("h{}", i);
    onnx::NodeProto& node = model.node(op, {before.c_str()}, next.c_str());
    for (const char* constant : constants) node.add_input(constant);
    before = next;
  }
  return model;
}

// Reading one tensor for many nodes must not need much more memory than the size of the file.
TEST(OnnxImport, LimitsRepeatedUseOfATensor) {
  constexpr int64_t kWidth = 1 << 18;
  Model model = chain("BatchNormalization", {"w", "b", "mean", "var"}, kWidth, 200);
  for (const char* name : {"w", "b", "mean", "var"}) {
    model.floats(name, {kWidth}, std::vector<float>(kWidth));
  }
  expect_words(error_message<DataError>([&] { model.read(); }), {"more values"});
}

// It was trained as many parameters.
TEST(OnnxImport, ATensorThatSeveralOperatorsReadIsOneParameter) {
  Model model = chain("Gemm", {"fc.weight", "fc.bias"}, 3, 5);
  model.floats("fc.weight", {3, 3}, std::vector<float>(9, 0.5F));
  model.floats("fc.bias", {3}, {1, 2, 3});
  const OnnxModel read = model.read();
  EXPECT_EQ(read.weights.size(), 2u);
  for (int i = 1; i <= 5; ++i) {
    EXPECT_EQ(read.network.layer(i).shared().weight(), "fc");
    EXPECT_EQ(read.network.layer(i).shared().bias(), "fc");
  }
  EXPECT_FALSE(read.network.layer(0).has_shared());
}

// PyTorch's TorchScript exporter stores equal parameters once; Identity has the name of the other.
TEST(OnnxImport, EqualParametersOfAModuleRemainDifferentOnes) {
  const auto read = [](const char* producer) {
    Model model({3});
    model.proto.set_producer_name(producer);
    model.node("Identity", {"n1.weight"}, "n2.weight");
    model.node("LayerNormalization", {"x", "n1.weight"}, "a");
    model.node("LayerNormalization", {"a", "n2.weight"}, "y");
    model.floats("n1.weight", {3}, {1, 1, 1});
    return model.read();
  };
  const OnnxModel different = read("pytorch");
  EXPECT_EQ(different.network.layer(1).name(), "n2");
  EXPECT_FALSE(different.network.layer(1).has_shared());
  EXPECT_EQ(different.weights.at("n2.weight").values, (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(read("another").network.layer(1).shared().weight(), "n1");
}

TEST(OnnxImport, TensorsThatCannotBeOneParameterAreNamed) {
  Model turned({3});
  turned.node("MatMul", {"x", "w"}, "a");
  set_attribute(turned.node("Gemm", {"a", "w"}, "y"), "transB", {1});
  turned.floats("w", {3, 3}, std::vector<float>(9, 0.5F));
  expect_words(error_message<ConfigError>([&] { turned.read(); }),
               {"Gemm (node", "'w'", "in another form", "cannot be one parameter"});
  Model kinds({3});
  kinds.node("Gemm", {"x", "w", "v"}, "a");
  kinds.node("LayerNormalization", {"a", "v", "b"}, "y");
  kinds.floats("w", {3, 3}, std::vector<float>(9, 0.5F));
  kinds.floats("v", {3}, {1, 2, 3});
  kinds.floats("b", {3}, {1, 2, 3});
  expect_words(error_message<ConfigError>([&] { kinds.read(); }),
               {"LayerNormalization (node", "'v'", "the bias of layer", "cannot be one parameter"});
}

// Numbers that the network multiplies by or adds are parameters, except for those of a
// normalization and of Constant operators.
TEST(OnnxImport, ReadsScalesAndShifts) {
  const auto read = [](const std::function<void(Model&)>& build) {
    Model model({4});
    model.floats("v", {4}, {1, 2, 3, 4});
    model.floats("u", {4}, {5, 6, 7, 8});
    model.floats("one", {}, {1});
    model.floats("fc.weight", {4, 2}, std::vector<float>(8));
    build(model);
    model.node("Gemm", {"h", "fc.weight"}, "y");
    return model.read();
  };
  const OnnxModel affine = read([](Model& m) {
    m.node("Mul", {"x", "v"}, "a");
    m.node("Add", {"u", "a"}, "h");
  });
  EXPECT_EQ(kinds_of(affine), (Kinds{"scale", "dense", "softmax_cross_entropy"}));
  const std::string name = affine.network.layer(0).name();
  EXPECT_EQ(affine.weights.at(name + ".weight").values, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(affine.weights.at(name + ".bias").values, (std::vector<float>{5, 6, 7, 8}));
  EXPECT_TRUE(is_identity(affine.normalization));
  EXPECT_TRUE(affine.frozen.empty());
  EXPECT_EQ(affine.warnings.size(), 1u);

  const OnnxModel shift = read([](Model& m) { m.node("Add", {"x", "v"}, "h"); });
  EXPECT_FALSE(shift.network.layer(0).scale().weight());
  const OnnxModel number = read([](Model& m) { m.node("Mul", {"x", "one"}, "h"); });
  EXPECT_EQ(number.network.layer(0).scale().per(), ScaleConfig::ALL);
  EXPECT_EQ(number.weights.at(number.network.layer(0).name() + ".weight").values,
            (std::vector<float>{1}));
  const OnnxModel later = read([](Model& m) {
    m.node("Tanh", {"x"}, "a");
    m.node("Sub", {"a", "v"}, "h");
  });
  EXPECT_EQ(kinds_of(later), (Kinds{"tanh", "scale", "dense", "softmax_cross_entropy"}));
  EXPECT_EQ(later.weights.at(later.network.layer(1).name() + ".bias").values,
            (std::vector<float>{-1, -2, -3, -4}));

  const OnnxModel normalized = read([](Model& m) {
    m.node("Sub", {"x", "v"}, "a");
    m.node("Div", {"a", "u"}, "h");
  });
  EXPECT_EQ(kinds_of(normalized), (Kinds{"dense", "softmax_cross_entropy"}));
  EXPECT_EQ(normalized.normalization.mean, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(normalized.normalization.stddev, (std::vector<float>{5, 6, 7, 8}));
  ASSERT_EQ(normalized.warnings.size(), 1u);
  expect_words(normalized.warnings[0], {"'v', 'u'", "data.normalize", "not trained"});

  // Which a division by parameters is not.
  expect_words(error_message<ConfigError>([&] {
                 read([](Model& m) { m.node("Div", {"x", "v"}, "h"); });
               }),
               {"Div (node", "'v'", "multiply by them"});
}

TEST(OnnxImport, NumbersOfConstantOperatorsAreNotTrained) {
  const auto read = [](const char* op, const char* before) {
    Model model({4});
    onnx::NodeProto& two = model.node("Constant", {}, "two");
    onnx::AttributeProto& value = *two.add_attribute();
    value.set_name("value_float");
    value.set_f(2);
    model.node(before, {"x"}, "b");
    model.node(op, {"b", "two"}, "h");
    model.node("Gemm", {"h", "fc.weight"}, "y");
    model.floats("fc.weight", {4, 2}, std::vector<float>(8));
    return model.read();
  };
  EXPECT_EQ(read("Div", "Identity").normalization.scale, 0.5F);
  const OnnxModel middle = read("Div", "Tanh");
  EXPECT_EQ(kinds_of(middle), (Kinds{"tanh", "scale", "dense", "softmax_cross_entropy"}));
  const std::string weight = middle.network.layer(1).name() + ".weight";
  EXPECT_EQ(middle.weights.at(weight).values, std::vector<float>{0.5F});
  EXPECT_EQ(middle.frozen, std::vector<std::string>{weight});
}

// It would train a bias that the file does not have.
TEST(OnnxImport, ALayerNormWithoutBiasHasAFrozenOne) {
  Model model({4});
  model.node("LayerNormalization", {"x", "ln.weight"}, "h");
  model.floats("ln.weight", {4}, {1, 2, 3, 4});
  model.node("Gemm", {"h", "w"}, "y");
  model.floats("w", {4, 2}, std::vector<float>(8));
  EXPECT_EQ(model.read().frozen, std::vector<std::string>{"ln.bias"});
}

TEST(OnnxImport, FactorsOfParametersAreNotSupported) {
  Model model({2});
  onnx::AttributeProto& alpha = *model.node("Gemm", {"x", "w"}, "y").add_attribute();
  alpha.set_name("alpha");
  alpha.set_f(0.5F);
  model.floats("w", {2, 2}, {1, 2, 3, 4});
  expect_words(error_message<ConfigError>([&] { model.read(); }), {"Gemm", "alpha"});
}

TEST(OnnxImport, RejectsUnknownOpsets) {
  for (const int64_t version : {6, 99}) {
    Model model({2});
    model.proto.mutable_opset_import(0)->set_version(version);
    model.node("Gemm", {"x", "w"}, "y");
    model.floats("w", {2, 2}, {1, 2, 3, 4});
    expect_words(error_message<ConfigError>([&] { model.read(); }),
                 {fmt::format("is of opset {}", version).c_str(), "export it with"});
  }
}

TEST(OnnxImport, RejectsValuesThatAreComputedTwice) {
  Model model({2});
  for (int i = 0; i < 2; ++i) model.node("Tanh", {"x"}, "h");
  model.node("Gemm", {"x", "w"}, "y");
  model.floats("w", {2, 2}, {1, 2, 3, 4});
  expect_words(error_message<DataError>([&] { model.read(); }), {"'h' is computed twice"});
}

// Linear in the number of operators, which is limited.
TEST(OnnxImport, LimitsTheNumberOfOperators) {
  const Model model = chain("Identity", {}, 2, 200'000);
  expect_words(error_message<ConfigError>([&] { model.read(); }),
               {"has 200001 operators; at most 200000"});
}

}  // namespace
}  // namespace trireme::model
