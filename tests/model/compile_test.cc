// What programs are compiled to: precision, layouts, fused operations, inference, documents.
#include "model/compile.h"

#include <cmath>
#include <limits>
#include <map>
#include <sstream>

#include "model/emitter.h"
#include "model/graph.h"
#include "model/program.h"
#include "model/zoo/zoo.h"
#include "tests/model/harness.h"

namespace trireme::model {
namespace {

// Rounds to the eight significant bits of BF16.
float rounded_to_bf16(float value) {
  int exponent = 0;
  const float mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, 8)), exponent - 8);
}

// Deep networks magnify any rounding. So the error is compared to that of f32 gradients with
// rounded weights.
TEST(Compile, Bf16GradientsAreAsAccurateAsWithRoundedWeights) {
  if (!ops::cpu_computes_in(DType::kBF16)) GTEST_SKIP() << "this CPU cannot compute in BF16";
  for (const char* name : {"mlp", "lenet", "resnet20", "resnet18-cifar"}) {
    SCOPED_TRACE(name);
    const ModelInput input = zoo_input(name);
    const CompileOptions options{.batch = 4};
    TestNetwork full(zoo(name), input, cpu(), options);
    TestNetwork rounded(zoo(name), input, cpu(), options);
    TestNetwork low(zoo(name), input, in_low_precision(cpu(), DType::kBF16, 8), options);
    for (const Parameter& parameter : rounded.parameters.all) {
      std::vector<float> numbers = rounded.value(parameter);
      for (float& number : numbers) number = rounded_to_bf16(number);
      rounded.set_value(parameter, numbers);
    }
    const TestBatch batch(input, options.batch, 12);
    for (TestNetwork* net : {&full, &rounded, &low}) net->run(batch);
    const std::vector<float> wanted = full_gradient(full);
    const double yardstick = relative_error(full_gradient(rounded), wanted);
    EXPECT_GT(yardstick, 1e-4);
    EXPECT_LT(relative_error(full_gradient(low), wanted), 3 * yardstick);
    EXPECT_NEAR(low.metric(ops::kMetricLoss), full.metric(ops::kMetricLoss),
                0.01 * full.metric(ops::kMetricLoss));
  }
}

// Layers keep references to specs while they add values.
TEST(Compile, SpecsStayWhereTheyAreWhenValuesAreAdded) {
  const std::unique_ptr<Device> device = reference().device();
  const std::unique_ptr<ops::Backend> backend = reference().backend(*device);
  const Graph graph =
      build_graph(network("layer { dense { units: 5 } } layer { softmax_cross_entropy {} }"),
                  classified({8}, 5));
  Parameters parameters;
  parameters.dtype = DType::kF64;
  Emitter emit(graph, *backend, {.batch = 4}, parameters);
  const TensorSpec& target_spec = emit.spec(emit.target());
  for (int i = 0; i < 10000; ++i) emit.new_value({4, 8});
  EXPECT_EQ(&emit.spec(emit.target()), &target_spec);
}

// If forward and backward need different layouts, low-precision parameters are reordered, not the
// gradients, which are twice as large.
TEST(Compile, GradientsAreNotReordered) {
  for (const TestTarget& target : targets()) {
    SCOPED_TRACE(target.name);
    TestNetwork net(zoo("resnet20"), classified({3, 32, 32}, 10), target, {.batch = 4});
    std::istringstream listing(net.program->listing());
    for (std::string line; std::getline(listing, line);) {
      const bool reorders = line.find(" reorder ") != std::string::npos;
      EXPECT_FALSE(reorders && line.find(" gradient") != std::string::npos) << line;
    }
  }
}

// In training, the CPU stores the argument of the activation before it computes the activation.
TEST(Compile, FusesDenseLayersWithGelu) {
  for (const bool training : {true, false}) {
    TestNetwork net(network("layer { name: 'fc1' dense { units: 12 } } layer { gelu_tanh {} }"
                            "layer { name: 'fc2' dense { units: 12 } } layer { gelu {} }"
                            "layer { name: 'fc3' dense { units: 5 } }"
                            "layer { softmax_cross_entropy {} }"),
                    classified({8}, 5), reference(), {.batch = 4, .training = training});
    std::map<std::string_view, int> counts;
    for (const InstructionReport& instruction : net.program->instructions()) {
      ++counts[instruction.operation];
    }
    EXPECT_EQ(counts["dense_forward"], 3);
    EXPECT_EQ(counts["activation_forward"], training ? 2 : 0);
    EXPECT_EQ(counts["dense_backward_data"], training ? 2 : 0);
    EXPECT_EQ(counts["activation_backward"], 0);
  }
}

TEST(Compile, NormalizesStoredImages) {
  // Channels-last u8 images give the same loss as row-major f32 images with the same values.
  ModelInput stored = classified({3, 4, 4}, 3);
  stored.input = {DType::kU8, {3, 4, 4}, Layout::channels_last()};
  stored.scale = 1.0f / 255;
  stored.mean = {0.4f, 0.5f, 0.6f};
  stored.stddev = {0.2f, 0.3f, 0.4f};
  const ModelConfig config = network(
      "layer { conv2d { channels: 4 kernel: 3 } } layer { flatten {} } layer { dense { units: 3 } }"
      "layer { softmax_cross_entropy {} }");
  const ModelInput plain = classified({3, 4, 4}, 3);
  TestNetwork from_bytes(config, stored, cpu(), {.batch = 2});
  TestNetwork from_floats(config, plain, cpu(), {.batch = 2});
  TestBatch floats(plain, 2, 8);
  TestBatch bytes = floats;
  auto* pixels = reinterpret_cast<uint8_t*>(bytes.inputs.data());
  for (size_t n = 0; n < 2; ++n) {
    for (size_t s = 0; s < 16; ++s) {
      for (size_t c = 0; c < 3; ++c) {
        const auto pixel = static_cast<uint8_t>(37 * n + 11 * s + 5 * c);
        pixels[(n * 16 + s) * 3 + c] = pixel;
        floats.inputs[(n * 3 + c) * 16 + s] =
            (static_cast<float>(pixel) / 255 - stored.mean[c]) / stored.stddev[c];
      }
    }
  }
  from_bytes.run(bytes);
  from_floats.run(floats);
  EXPECT_NEAR(from_bytes.metric(ops::kMetricLoss), from_floats.metric(ops::kMetricLoss), 1e-5);
}

TEST(Compile, NamesTheLayerWhoseOutputIsNotFinite) {
  const ModelInput input = classified({6}, 3);
  const ModelConfig config = network(
      "layer { name: 'a' dense { units: 4 } } layer { name: 'b' dense { units: 4 } }"
      "layer { name: 'c' dense { units: 3 } } layer { softmax_cross_entropy {} }");
  TestNetwork net(config, input, cpu(), {.batch = 4});
  TestBatch batch(input, 4, 9);
  for (const Parameter& parameter : net.parameters.all) {
    if (parameter.name == "b.bias") net.set_value(parameter, std::vector<float>(4, 3e38f));
    if (parameter.name == "c.weight") net.set_value(parameter, std::vector<float>(12, -4));
  }
  EXPECT_EQ(net.first_not_finite(batch)->what, "output of layer 'c' is not finite (-inf)");
  batch.inputs[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(net.first_not_finite(batch)->what, "a sample is not finite (nan)");
}

TEST(Compile, InferenceUsesRunningStatisticsAndNoDropout) {
  const ModelInput input = classified({2, 4, 4}, 3);
  const ModelConfig config = network(
      "layer { conv2d { channels: 4 kernel: 3 } } layer { batch_norm {} } layer { dropout { rate: "
      "0.9 } }"
      "layer { flatten {} } layer { dense { units: 3 } } layer { softmax_cross_entropy {} }");
  TestNetwork exact(config, input, reference(), {.batch = 4, .training = false});
  TestNetwork fast(config, input, cpu(), {.batch = 4, .training = false});
  const TestBatch batch(input, 4, 9);
  exact.run(batch);
  fast.run(batch);
  EXPECT_NEAR(fast.metric(ops::kMetricLoss), exact.metric(ops::kMetricLoss), 1e-4);
  EXPECT_EQ(fast.metric(ops::kMetricSamples), 4);
  const double loss = fast.metric(ops::kMetricLoss);
  fast.state.step = 99;
  fast.run(batch);
  EXPECT_EQ(fast.metric(ops::kMetricLoss), loss);
}

// The second of two documents in a window gives what it gives in a window of its own.
TEST(Compile, DocumentsDoNotAffectEachOther) {
  constexpr int64_t kFirst = 70, kSecond = 100, kVocabulary = 9;
  const ModelConfig config = network(
      "layer { name: 'e' embedding { units: 16 } } layer { rms_norm {} } layer { dense { units: 32 "
      "} }"
      "layer { attention { heads: 2 kv_heads: 1 causal: true rotary {} document_end: 0 } }"
      "layer { dense { units: 16 } } layer { name: 's' add {} input: 'e' input: 'dense_4' }"
      "layer { rms_norm {} } layer { dense { units: 32 } }"
      "layer { attention { heads: 4 kv_heads: 2 causal: true document_end: 0 } }"
      "layer { dense { units: 9 } } layer { softmax_cross_entropy {} }");
  for (const TestTarget& target : targets()) {
    SCOPED_TRACE(target.name);
    const auto run = [&](int64_t length, std::vector<int32_t> tokens) {
      const ModelInput input = token_input(length, kVocabulary);
      auto net = std::make_unique<TestNetwork>(config, input, target, CompileOptions{.batch = 1});
      TestBatch batch(input, 1, 1);
      batch.labels = tokens;
      std::fill_n(batch.labels.begin(), length - kSecond, kIgnoredLabel);
      batch.set_tokens(std::move(tokens));
      net->run(batch);
      return net;
    };
    std::vector<int32_t> both, second;
    for (int32_t t = 0; t < kFirst + kSecond; ++t) both.push_back(1 + t * t % (kVocabulary - 1));
    both[kFirst - 1] = 0;
    second.assign(both.begin() + kFirst, both.end());
    const auto packed = run(kFirst + kSecond, both), alone = run(kSecond, second);
    const double loss = alone->metric(ops::kMetricLoss);
    EXPECT_GT(loss, 1);
    EXPECT_NEAR(packed->metric(ops::kMetricLoss), loss, target.loss * loss);
    for (const Parameter& parameter : alone->parameters.all) {
      EXPECT_LT(relative_error(packed->gradient(parameter), alone->gradient(parameter)),
                target.gradient)
          << parameter.name;
    }
    const auto instructions = packed->program->instructions();
    EXPECT_EQ(std::ranges::count(instructions, "document_starts", &InstructionReport::operation),
              1);
  }
}

TEST(Compile, TrainingAndInferenceShareParameters) {
  // Compiling for inference does not change the parameters of the training program.
  const auto device = create_cpu_device(1);
  const auto backend = ops::create_cpu_backend(*device);
  const ModelInput input = classified({3, 16, 16}, 10);
  const Graph graph = build_graph(zoo("resnet20"), input);
  Parameters parameters;
  Program::compile(graph, *backend, {.batch = 8}, parameters);
  const Parameters before = parameters;
  Program::compile(graph, *backend, {.batch = 16, .training = false}, parameters);
  ASSERT_EQ(parameters.all.size(), before.all.size());
  for (size_t p = 0; p < before.all.size(); ++p) {
    EXPECT_EQ(parameters.all[p].spec, before.all[p].spec) << before.all[p].name;
    EXPECT_EQ(parameters.all[p].begin, before.all[p].begin);
  }
  EXPECT_EQ(parameters.elements, before.elements);
}

}  // namespace
}  // namespace trireme::model
