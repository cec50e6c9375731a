// Tests folding batch norms into convolutions.
#include <algorithm>
#include <cmath>

#include "model/passes/passes.h"
#include "tests/model/harness.h"

namespace trireme::model {
namespace {

// Random values like those of a trained network.
Weights random_weights(const Graph& graph) {
  Weights weights;
  const Random random(5, RandomPurpose::kSynthetic);
  uint64_t index = 0;
  const auto add = [&](const std::string& name, const Shape& shape, float mean, float stddev) {
    Weight& weight = weights[name];
    weight.shape = shape;
    for (int64_t i = 0; i < shape.elements(); ++i) {
      weight.values.push_back(mean + stddev * random.normal_at(index++));
    }
  };
  for (const Node& node : graph.nodes) {
    const bool norm = node.layer->kind() == "batch_norm";
    for (const auto& parameter : node.signature.parameters) {
      const auto fan_in = static_cast<float>(parameter.shape.elements() / parameter.shape[0]);
      const bool scales = norm && parameter.name == "weight";
      add(node.name + "." + parameter.name, parameter.shape, scales ? 1.0F : 0.0F,
          norm ? 0.2F : 1 / std::sqrt(fan_in));
    }
    for (const auto& running : node.signature.running_stats) {
      const bool variance = running.name == "running_var";
      add(node.name + "." + running.name, running.shape, variance ? 1.0F : 0.1F, 0.2F);
      if (!variance) continue;
      for (float& v : weights[node.name + ".running_var"].values) v = std::abs(v) + 0.05F;
    }
  }
  return weights;
}

std::vector<float> outputs(const Graph& graph, const Weights& weights, const TestTarget& target,
                           const TestBatch& batch, int64_t rows) {
  const auto device = target.device();
  const auto backend = target.backend(*device);
  const auto stream = device->create_stream(StreamKind::kCompute);
  Parameters parameters;
  const auto program = Program::compile(
      graph, *backend, {.batch = rows, .training = false, .dtype = target.dtype, .output = true},
      parameters);
  const Buffer values = device->allocate(parameters.array_bytes());
  const Buffer running = device->allocate(parameters.running_stat_bytes());
  for (const Parameter& parameter : parameters.all) {
    from_canonical(*backend, weights.at(parameter.name).values.data(), parameter.spec,
                   parameter.at(values.data()));
  }
  for (const RunningStatistic& value : parameters.running_stats) {
    from_canonical(*backend, weights.at(value.name).values.data(), value.spec,
                   value.at(running.data()));
  }
  EXPECT_EQ(weights.size(), parameters.all.size() + parameters.running_stats.size());
  const LowPrecisionCopy low(parameters, *backend);
  low.refresh(values.data(), *stream);
  const size_t numbers = static_cast<size_t>(rows * graph.input.classes);
  const Buffer activations = device->allocate(program->activation_bytes());
  const Buffer metrics = device->allocate(ops::kMetricCount * sizeof(double));
  const Buffer output = device->allocate(numbers * sizeof(float));
  const Buffer state = device->allocate(sizeof(ops::StepState));
  const ops::StepState step{.valid_rows = static_cast<int32_t>(rows)};
  const auto on_device = [&](std::span<const std::byte> host) {
    Buffer buffer = device->allocate(host.size());
    device->copy(buffer.data(), host.data(), host.size(), *stream);
    return buffer;
  };
  const Buffer inputs = on_device(std::as_bytes(std::span(batch.inputs)));
  const Buffer targets = on_device(batch.targets());
  device->copy(state.data(), &step, sizeof step, *stream);
  Context context(*program,
                  {.parameters = values.data(),
                   .low_precision = low.data(),
                   .gradients = metrics.data(),
                   .running_stats = running.data()},
                  activations.data());
  context.bind(Port::kOutput, output.data());
  context.bind_batch(inputs.data(), targets.data(), state.as<ops::StepState>());
  context.forward(*stream);
  std::vector<float> host(numbers);
  device->copy(host.data(), output.data(), output.bytes(), *stream);
  stream->synchronize();
  return host;
}

int64_t norms(const Graph& graph) {
  return std::ranges::count_if(graph.nodes,
                               [](const Node& node) { return node.layer->kind() == "batch_norm"; });
}

// `remaining`: norms that cannot be folded.
void expect_same_outputs(const ModelConfig& config, const ModelInput& input, int64_t remaining) {
  constexpr int64_t kRows = 3;
  const TestBatch batch(input, kRows, 8);
  Graph original = build_graph(config, input);
  Graph folded = build_graph(config, input);
  const Weights weights = random_weights(original);
  Weights folded_weights = weights;
  fold_batch_norms(folded, folded_weights);
  EXPECT_EQ(norms(folded), remaining);
  EXPECT_GT(norms(original), remaining);
  for (const TestTarget& target : targets()) {
    SCOPED_TRACE(target.name);
    const std::vector<float> wanted = outputs(original, weights, target, batch, kRows);
    const double error =
        relative_error(outputs(folded, folded_weights, target, batch, kRows), wanted);
    EXPECT_LT(error, target.dtype == DType::kF32 ? 1e-5 : target.gradient);
  }
}

TEST(Fold, FoldsNormsAfterConvolutions) {
  expect_same_outputs(
      network("layer { conv2d { channels: 8 kernel: 3 padding: 1 } } layer { batch_norm {} }"
              "layer { relu {} }"
              "layer { conv2d { channels: 8 kernel: 3 groups: 4 bias: false } }"
              "layer { batch_norm { epsilon: 0.1 } }"
              "layer { conv2d { channels: 6 kernel: 1 stride: 2 } } layer { relu {} }"
              "layer { batch_norm {} }"  // not folded: follows an activation
              "layer { flatten {} } layer { dense { units: 5 } } layer { batch_norm {} }"
              "layer { dense { units: 4 } } layer { softmax_cross_entropy {} }"),
      classified({4, 9, 9}, 4), 2);
}

TEST(Fold, FoldsOnlyNormsThatAreTheOnlyReader) {
  expect_same_outputs(
      network(
          "layer { name: 'c' conv2d { channels: 6 kernel: 3 padding: 1 } }"
          "layer { name: 'n' batch_norm {} input: 'c' }"
          "layer { name: 'd' conv2d { channels: 6 kernel: 1 } input: 'n' }"
          "layer { name: 'e' batch_norm {} input: 'd' }"
          "layer { name: 'f' add {} input: 'e' input: 'd' }"  // reads 'd', so 'e' is not folded
          "layer { name: 'g' add {} input: 'f' input: 'n' }"
          "layer { flatten {} } layer { dense { units: 3 } } layer { softmax_cross_entropy {} }"),
      classified({2, 6, 6}, 3), 1);
}

// The norms that are fused with the nine residual sums are not folded.
TEST(Fold, FoldsResidualNetworks) {
  expect_same_outputs(zoo("resnet20"), classified({3, 32, 32}, 10), 9);
}

// The weights of a convolution that runs twice cannot be those of two norms.
TEST(Fold, SharedLayersRemain) {
  const ModelConfig config = network(
      "layer { name: 'c' conv2d { channels: 3 kernel: 3 padding: 1 } } layer { name: 'n' "
      "batch_norm "
      "{} }"
      "layer { name: 'd' conv2d { channels: 3 kernel: 3 padding: 1 } shared { weight: 'c' bias: "
      "'c' "
      "} }"
      "layer { name: 'm' batch_norm {} } layer { flatten {} } layer { dense { units: 3 } }"
      "layer { softmax_cross_entropy {} }");
  Graph graph = build_graph(config, classified({3, 5, 5}, 3));
  Weights weights = random_weights(graph);
  weights.erase("d.weight");
  weights.erase("d.bias");
  const size_t layers = graph.nodes.size(), tensors = weights.size();
  fold_batch_norms(graph, weights);
  EXPECT_EQ(graph.nodes.size(), layers);
  EXPECT_EQ(weights.size(), tensors);
}

}  // namespace
}  // namespace trireme::model
