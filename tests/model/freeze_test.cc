// Frozen parameters are read and never changed, and cost neither gradient memory nor work.
#include <gtest/gtest.h>

#include "core/error.h"
#include "harness.h"

namespace trireme::model {
namespace {

constexpr int64_t kRows = 6;

// Norms with a residual sum and ReLU, a projection shortcut, and layers before and after.
const std::string kNetwork =
    "layer { name: 'conv1' conv2d { channels: 8 kernel: 3 padding: 1 } }"
    "layer { name: 'bn1' batch_norm {} } layer { name: 'r1' relu {} }"
    "layer { name: 'conv2' conv2d { channels: 8 kernel: 3 padding: 1 bias: false } }"
    "layer { name: 'bn2' batch_norm {} }"
    "layer { name: 'down' conv2d { channels: 8 kernel: 1 } input: 'r1' }"
    "layer { name: 'add' add {} input: 'bn2' input: 'down' } layer { name: 'r2' relu {} }"
    "layer { name: 'pool' global_pool {} } layer { name: 'flat' flatten {} }"
    "layer { name: 'fc1' dense { units: 12 } } layer { name: 't' tanh {} }"
    "layer { name: 'fc2' dense { units: 5 } } layer { softmax_cross_entropy {} }";

ModelConfig frozen(const std::vector<std::string>& patterns) {
  ModelConfig config = network(kNetwork);
  for (const std::string& pattern : patterns) config.add_freeze(pattern);
  return config;
}

const ModelInput kInput = classified({3, 6, 6}, 5);
const char* const kNorms = "bn[12]\\..*";

std::string error_of(const std::vector<std::string>& patterns) {
  try {
    build_graph(frozen(patterns), kInput);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Freeze, NamesInvalidPatterns) {
  EXPECT_EQ(error_of({"conv2.*"}), "no error");
  EXPECT_EQ(error_of({"conv2.*", "cnov1.*"}),
            "model.freeze[1]: 'cnov1.*' matches the whole name of no parameter; did you mean "
            "'conv1.*'?");
  EXPECT_EQ(error_of({"fc1"}),
            "model.freeze[0]: 'fc1' matches the whole name of no parameter; did you mean "
            "'fc1.*'?");
  EXPECT_NE(error_of({"fc1("}).find("model.freeze[0]: 'fc1(' is not a regular expression"),
            std::string::npos);
  EXPECT_EQ(error_of({std::string(30'000, '(')}),
            "model.freeze[0]: '" + std::string(40, '(') +
                "...' is not a regular expression that RE2 supports: missing ): " +
                std::string(29, '(') + "...");
  std::string large;
  for (int i = 0; i < 50; ++i) large += "[[:alpha:]]{0,1000}";
  EXPECT_NE(error_of({large}).find("RE2 supports: pattern too large"), std::string::npos);
  EXPECT_EQ(
      error_of({"(?!fc2).*"}),
      "model.freeze[0]: '(?!fc2).*' is not a regular expression that RE2 supports: invalid perl "
      "operator: (?!");
  // With backtracking, matching would take minutes.
  EXPECT_NE(error_of({"((.*)*)*x"}).find("matches the whole name of no parameter"),
            std::string::npos);
  EXPECT_EQ(error_of({".*"}),
            "model.freeze: all parameters are frozen, so there is nothing to "
            "train");
}

TEST(Freeze, FrozenParametersNeedNoGradientsOrWork) {
  TestNetwork all(frozen({}), kInput, cpu(), {.batch = kRows});
  TestNetwork head(frozen({"[^f].*|fc1.*"}), kInput, cpu(), {.batch = kRows});
  EXPECT_EQ(all.parameters.trained_elements, all.parameters.elements);
  EXPECT_EQ(all.parameters.updated_stat_elements, all.parameters.running_stat_elements);
  EXPECT_EQ(head.parameters.elements, all.parameters.elements);
  EXPECT_EQ(head.parameters.count(), all.parameters.count());
  EXPECT_EQ(head.parameters.trained_count(), 12 * 5 + 5);
  EXPECT_EQ(head.parameters.updated_stat_elements, 0);
  for (const Parameter& parameter : head.parameters.all) {
    EXPECT_EQ(parameter.frozen, !parameter.name.starts_with("fc2.")) << parameter.name;
    EXPECT_EQ(parameter.begin >= head.parameters.trained_elements, parameter.frozen);
  }
  EXPECT_LT(head.parameters.trained_bytes(), all.parameters.trained_bytes() / 4);
  EXPECT_LT(head.program->activation_bytes(), all.program->activation_bytes());
  EXPECT_EQ(head.program->forward_flops(), all.program->forward_flops());
  // One matrix product: the backward pass stops at the last layer.
  EXPECT_EQ(head.program->backward_flops(), 2.0 * kRows * 12 * 5);
  for (const LayerReport& layer : head.program->layers()) {
    EXPECT_EQ(layer.frozen, layer.name == "fc2" ? 0 : layer.parameters) << layer.name;
    EXPECT_EQ(layer.backward_flops > 0, layer.name == "fc2") << layer.name;
  }
}

// Gradients are propagated through frozen layers to trained ones before them.
TEST(Freeze, FreezingAboveTrainedLayersSavesOnlyWeightGradients) {
  TestNetwork all(frozen({}), kInput, cpu(), {.batch = kRows});
  TestNetwork some(frozen({"conv2.weight", "fc1.weight", "fc2.bias"}), kInput, cpu(),
                   {.batch = kRows});
  const double conv2 = 2.0 * kRows * 36 * 8 * 8 * 9;
  EXPECT_EQ(all.program->backward_flops() - some.program->backward_flops(), conv2);
}

// Group norm has no running statistics, so a frozen one computes the same function.
const std::string kGroupNorms =
    "layer { name: 'conv' conv2d { channels: 8 kernel: 3 } }"
    "layer { name: 'gn1' group_norm { num_groups: 2 } } layer { relu {} }"
    "layer { name: 'flat' flatten {} } layer { name: 'fc1' dense { units: 12 } }"
    "layer { name: 'gn2' group_norm { num_groups: 3 } } layer { tanh {} }"
    "layer { name: 'fc2' dense { units: 5 } } layer { softmax_cross_entropy {} }";

// Expects that the trained parameters of `part` have the gradients that they have in `full`.
void expect_gradients_of(TestNetwork& full, TestNetwork& part) {
  int compared = 0;
  for (const Parameter& parameter : part.parameters.all) {
    if (parameter.frozen) continue;
    const auto same = std::ranges::find(full.parameters.all, parameter.name, &Parameter::name);
    EXPECT_LT(relative_error(part.gradient(parameter), full.gradient(*same)), 1e-6)
        << parameter.name;
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

class FreezeOnTargets : public ::testing::TestWithParam<TestTarget> {};

// Frozen norms use running statistics in both networks, so these compute the same function.
TEST_P(FreezeOnTargets, DoesNotChangeGradientsOfOtherParameters) {
  const TestBatch batch(kInput, kRows, 4);
  const std::vector<std::vector<std::string>> kFrozen = {
      {kNorms, "conv1.*"}, {kNorms, "conv2.*"}, {kNorms, "down.weight", "fc1.bias"},
      {"[^f].*|fc1.*"},    {"[^d].*"},
  };
  TestNetwork full(frozen({kNorms}), kInput, GetParam(), {.batch = kRows});
  full.run(batch);
  for (const auto& patterns : kFrozen) {
    SCOPED_TRACE(patterns.back());
    TestNetwork part(frozen(patterns), kInput, GetParam(), {.batch = kRows});
    part.run(batch);
    EXPECT_EQ(part.metric(ops::kMetricLoss), full.metric(ops::kMetricLoss));
    EXPECT_EQ(part.watermarks.back(), part.parameters.trained_elements);
    expect_gradients_of(full, part);
  }
}

// Some parameters of a recurrent layer, all of one between trained layers, and those of the first.
TEST_P(FreezeOnTargets, RecurrentLayersHaveTheSameGradients) {
  const ModelInput input = token_input(6, 5);
  const ModelConfig network_config = network(
      "layer { name: 'te' embedding { units: 4 } }"
      "layer { name: 'rnn' lstm { hidden: 5 layers: 2 bidirectional: true } }"
      "layer { name: 'gru' gru { hidden: 3 } } layer { name: 'fc' dense { units: 5 } }"
      "layer { softmax_cross_entropy {} }");
  const TestBatch batch(input, kRows, 4);
  TestNetwork full(network_config, input, GetParam(), {.batch = kRows});
  full.run(batch);
  for (const char* pattern : {"rnn.weight_hh_l[01]_reverse", "rnn.*", "te.*", "(te|rnn).*"}) {
    SCOPED_TRACE(pattern);
    ModelConfig config = network_config;
    config.add_freeze(pattern);
    TestNetwork part(config, input, GetParam(), {.batch = kRows});
    part.run(batch);
    EXPECT_LE(part.program->backward_flops(), full.program->backward_flops());
    expect_gradients_of(full, part);
  }
}

TEST_P(FreezeOnTargets, FrozenGroupNormsPropagateTheSameGradients) {
  const TestBatch batch(kInput, kRows, 4);
  TestNetwork full(network(kGroupNorms), kInput, GetParam(), {.batch = kRows});
  full.run(batch);
  for (const char* pattern : {"gn[12]\\..*", "(conv|gn1)\\..*", "gn1.weight"}) {
    SCOPED_TRACE(pattern);
    ModelConfig config = network(kGroupNorms);
    config.add_freeze(pattern);
    TestNetwork part(config, kInput, GetParam(), {.batch = kRows});
    part.run(batch);
    expect_gradients_of(full, part);
  }
}

TEST_P(FreezeOnTargets, FrozenNormsAgreeWithTheReferenceAndAreNotUpdated) {
  const TestBatch batch(kInput, kRows, 4);
  TestNetwork exact(frozen({kNorms}), kInput, reference(), {.batch = kRows});
  TestNetwork fast(frozen({kNorms}), kInput, GetParam(), {.batch = kRows});
  for (TestNetwork* net : {&exact, &fast}) {
    net->state.valid_rows = kRows - 1;
    for (const Parameter& parameter : net->parameters.all) {
      if (!parameter.name.starts_with("bn")) continue;
      std::vector<float> values = net->value(parameter);
      for (size_t i = 0; i < values.size(); ++i) values[i] = 0.7f + 0.1f * static_cast<float>(i);
      net->set_value(parameter, values);
    }
    net->run(batch);
  }
  for (const Parameter& parameter : exact.parameters.all) {
    if (parameter.frozen) continue;
    const auto same = std::ranges::find(fast.parameters.all, parameter.name, &Parameter::name);
    EXPECT_LT(relative_error(fast.gradient(*same), exact.gradient(parameter)), GetParam().gradients)
        << parameter.name;
  }
  for (const RunningStatistic& value : fast.parameters.running_stats) {
    EXPECT_TRUE(value.frozen);
    EXPECT_EQ(fast.running_stat(value), std::vector<float>(8, value.initial)) << value.name;
  }
}

TEST_P(FreezeOnTargets, GradientsOfSeveralPassesAddUp) {
  const TestBatch batch(kInput, kRows, 4);
  const CompileOptions options{.batch = kRows, .accumulate = true};
  TestNetwork once(frozen({kNorms, "conv2.*"}), kInput, GetParam(), options);
  TestNetwork twice(frozen({kNorms, "conv2.*"}), kInput, GetParam(), options);
  once.run(batch, /*clear_gradients=*/true);
  twice.run(batch, /*clear_gradients=*/true);
  twice.run_again(batch);
  for (const Parameter& parameter : once.parameters.all) {
    if (parameter.frozen) continue;
    std::vector<float> doubled = once.gradient(parameter);
    for (float& number : doubled) number *= 2;
    EXPECT_LT(relative_error(twice.gradient(parameter), doubled), 1e-3) << parameter.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FreezeOnTargets, testing::ValuesIn(targets()),
                         [](const auto& tested) { return tested.param.name; });

// Compares the backward pass through frozen norms with finite differences, in double precision.
TEST(Freeze, GradientsThroughFrozenNormsAreDerivatives) {
  const TestBatch batch(kInput, kRows, 4);
  TestNetwork net(frozen({kNorms, "conv2.weight"}), kInput, reference(), {.batch = kRows});
  net.run(batch);
  for (const Parameter& parameter : net.parameters.all) {
    if (parameter.frozen) continue;
    const size_t i = static_cast<size_t>(parameter.spec.shape.elements()) / 2;
    const double gradient = net.exact_gradient(parameter, i);
    double& value = net.exact_value(parameter, i);
    const double original = value;
    constexpr double kStep = 1e-6;
    const auto loss_at = [&](double at) {
      value = at;
      net.run_again(batch);
      return net.metric(ops::kMetricLoss) / kRows;
    };
    const double difference = (loss_at(original + kStep) - loss_at(original - kStep)) / (2 * kStep);
    value = original;
    EXPECT_NEAR(gradient, difference, 1e-6) << parameter.name;
  }
}

}  // namespace
}  // namespace trireme::model
