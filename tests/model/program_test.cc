// Complete networks: the reference against finite differences, other backends against the
// reference.
#include "model/program.h"

#include <algorithm>
#include <limits>

#include "tests/model/harness.h"

namespace trireme::model {
namespace {

struct Case {
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

  const char* name;
  const char* layers;  // without the loss
  Shape input;
  int64_t classes = 3;     // 0: regression on 3 numbers
  bool soft = false;       // labels are probabilities of classes
  bool tokens = false;     // the input is tokens, with a label for each
  int64_t vocab_size = 0;  // the input is tokens of this vocabulary, with a label for the sample
};

// Every layer, alone and in combinations that exercise passes and in-place operations.
const Case kCases[] = {
    {"dense", "layer { flatten {} } layer { dense { units: 3 } }", {7}},
    {"dense_relu",
     "layer { dense { units: 5 } } layer { relu {} } layer { dense { units: 3 bias: false } }",
     {7}},
    {"activations",
     "layer { dense { units: 6 } } layer { sigmoid {} } layer { dense { units: 6 } } layer { tanh "
     "{} }"
     "layer { dense { units: 6 } } layer { gelu {} } layer { dense { units: 6 } } layer { silu {} }"
     "layer { dense { units: 6 } } layer { gelu_tanh {} } layer { tanh {} } layer { dense { units: "
     "3 } }",
     {5}},
    {"conv",
     "layer { conv2d { channels: 6 kernel: 3 padding: 1 } } layer { relu {} }"
     "layer { conv2d { channels: 4 kernel: 3 kernel: 2 stride: 2 dilation: 1 groups: 2 } } layer { "
     "tanh {} }"
     "layer { flatten {} } layer { dense { units: 3 } }",
     {3, 6, 7}},
    {"depthwise_dilated",
     "layer { conv2d { channels: 8 kernel: 3 padding: 2 dilation: 2 } } layer { sigmoid {} }"
     "layer { conv2d { channels: 8 kernel: 3 groups: 8 padding: 1 bias: false } }"
     "layer { flatten {} } layer { dense { units: 3 } }",
     {2, 5, 5}},
    {"pools",
     "layer { conv2d { channels: 5 kernel: 3 padding: 1 } } layer { max_pool { kernel: 3 stride: 2 "
     "padding: 1 } }"
     "layer { conv2d { channels: 5 kernel: 3 padding: 1 } }"
     "layer { average_pool { kernel: 2 stride: 1 padding: 1 include_padding: false } }"
     "layer { average_pool { kernel: 2 padding: 1 } } layer { global_pool {} } layer { flatten {} }"
     "layer { dense { units: 3 } }",
     {2, 9, 8}},
    {"batch_norm",
     "layer { conv2d { channels: 6 kernel: 3 } } layer { batch_norm {} }"
     "layer { conv2d { channels: 6 kernel: 3 } } layer { batch_norm { epsilon: 1e-3 } } layer { "
     "relu {} }"
     "layer { flatten {} } layer { dense { units: 5 } } layer { batch_norm {} } layer { tanh {} }"
     "layer { dense { units: 3 } }",
     {2, 7, 7}},
    {"residual",
     "layer { name: 'c0' conv2d { channels: 6 kernel: 3 padding: 1 } } layer { name: 'n0' "
     "batch_norm {} }"
     "layer { name: 'r0' relu {} }"
     "layer { name: 'c1' conv2d { channels: 6 kernel: 3 padding: 1 bias: false } } layer { name: "
     "'n1' batch_norm {} }"
     "layer { name: 'a1' add {} input: 'n1' input: 'r0' } layer { name: 'r1' relu {} }"
     "layer { name: 'd' conv2d { channels: 8 kernel: 1 stride: 2 } } layer { name: 'dn' batch_norm "
     "{} }"
     "layer { name: 'c2' conv2d { channels: 8 kernel: 3 stride: 2 padding: 1 } input: 'r1' }"
     "layer { name: 'n2' batch_norm {} } layer { name: 'a2' add {} input: 'n2' input: 'dn' }"
     "layer { name: 'a3' add {} input: 'a2' input: 'c2' } layer { name: 'r3' relu {} }"
     "layer { flatten {} } layer { dense { units: 3 } }",
     {3, 6, 6}},
    {"batch_norm_first",
     "layer { batch_norm {} } layer { relu {} } layer { flatten {} } layer { dense { units: 3 } }",
     {2, 4, 4}},
    {"group_norm",
     "layer { conv2d { channels: 6 kernel: 3 } } layer { group_norm { num_groups: 3 } } layer { "
     "relu {} }"
     "layer { conv2d { channels: 32 kernel: 3 padding: 1 } } layer { group_norm { num_groups: 4 "
     "epsilon: 1e-3 } }"
     "layer { conv2d { channels: 6 kernel: 3 } } layer { group_norm { num_groups: 1 affine: false "
     "} }"
     "layer { flatten {} } layer { dense { units: 24 } } layer { group_norm { num_groups: 2 } } "
     "layer { tanh {} }"
     "layer { dense { units: 3 } }",
     {2, 8, 7}},
    {"instance_norm_first",
     "layer { group_norm { num_groups: 4 } } layer { relu {} } layer { flatten {} } layer { dense "
     "{ "
     "units: 3 } }",
     {4, 4, 5}},
    {"layer_norm",
     "layer { dense { units: 9 } } layer { layer_norm {} } layer { gelu {} } layer { dense { "
     "units: 3 } }",
     {6}},
    {"scale",
     "layer { scale {} } layer { conv2d { channels: 5 kernel: 3 } } layer { scale { bias: false } }"
     "layer { relu {} } layer { scale { per: ALL } } layer { flatten {} } layer { scale {} }"
     "layer { dense { units: 6 } } layer { scale { per: ELEMENT } } layer { dense { units: 3 } }",
     {3, 6, 5}},
    {"scaled_sequence",
     "layer { embedding { units: 6 } } layer { scale {} } layer { scale { per: ALL bias: false } }"
     "layer { dense { units: 3 } }",
     {5},
     3,
     false,
     true},
    {"shared",
     "layer { name: 'c' conv2d { channels: 2 kernel: 3 padding: 1 } } layer { relu {} }"
     "layer { name: 'd' conv2d { channels: 2 kernel: 3 stride: 2 } shared { weight: 'c' bias: 'c' "
     "} "
     "}"
     "layer { name: 'n' group_norm { num_groups: 1 } } layer { tanh {} }"
     "layer { name: 'm' group_norm { num_groups: 2 } shared { weight: 'n' } } layer { flatten {} }"
     "layer { name: 'a' dense { units: 8 } } layer { tanh {} }"
     "layer { name: 'b' dense { units: 8 } shared { weight: 'a' bias: 'a' } } layer { relu {} }"
     "layer { dense { units: 8 bias: false } shared { weight: 'b' } } layer { dense { units: 3 } }",
     {2, 5, 5}},
    {"dropout",
     "layer { conv2d { channels: 5 kernel: 2 } } layer { dropout { rate: 0.3 } } layer { flatten "
     "{} }"
     "layer { dense { units: 8 } } layer { relu {} } layer { dropout {} } layer { dense { units: 3 "
     "} }",
     {2, 5, 5}},
    {"concat",
     "layer { name: 'a' conv2d { channels: 3 kernel: 3 padding: 1 } } layer { relu {} }"
     "layer { name: 'b' conv2d { channels: 16 kernel: 1 } input: 'input' }"
     "layer { name: 'j' concat {} input: 'a' input: 'b' input: 'a' }"
     "layer { conv2d { channels: 4 kernel: 3 } } layer { flatten {} } layer { dense { units: 3 } }",
     {2, 5, 4}},
    {"twice_the_same",
     "layer { name: 'a' dense { units: 4 } } layer { name: 's' add {} input: 'a' input: 'a' }"
     "layer { name: 't' tanh {} input: 's' } layer { name: 'u' add {} input: 't' input: 's' } "
     "layer { dense { units: 3 } }",
     {6}},
    {"regression",
     "layer { dense { units: 8 } } layer { tanh {} } layer { dense { units: 3 } }",
     {5},
     0},
    {"soft_labels",
     "layer { dense { units: 8 } } layer { relu {} } layer { dense { units: 3 } }",
     {5},
     3,
     true},
    {"gpt",
     "layer { name: 'te' embedding { units: 12 positions: LEARNED } } layer { layer_norm {} }"
     "layer { dense { units: 36 } } layer { attention { heads: 3 causal: true } }"
     "layer { name: 'p' dense { units: 12 } } layer { name: 'r' add {} input: 'te' input: 'p' }"
     "layer { layer_norm {} } layer { dense { units: 24 } } layer { gelu_tanh {} }"
     "layer { name: 'q' dense { units: 12 } } layer { dropout { rate: 0.2 } }"
     "layer { add {} input: 'r' input: 'q' } layer { layer_norm {} }"
     "layer { dense { units: 3 bias: false tied_to: 'te' } }",
     {7},
     3,
     false,
     true},
    {"llama",
     "layer { name: 'te' embedding { units: 8 vocab_size: 5 } } layer { rms_norm {} }"
     "layer { dense { units: 32 bias: false } }"
     "layer { attention { heads: 4 kv_heads: 2 causal: true rotary { base: 100 } document_end: 1 } "
     "}"
     "layer { name: 'o' dense { units: 8 } } layer { name: 'r' add {} input: 'te' input: 'o' }"
     "layer { rms_norm { epsilon: 1e-3 } } layer { dense { units: 20 } } layer { swiglu {} }"
     "layer { dense { units: 9 } } layer { relu {} } layer { attention { heads: 1 padding_token: 2 "
     "} }",
     {6},
     3,
     false,
     true},
    {"lstm",
     "layer { embedding { units: 6 } } layer { lstm { hidden: 7 layers: 2 } } layer { dense { "
     "units: 3 } }",
     {5},
     3,
     false,
     true},
    {"bidirectional",
     "layer { embedding { units: 6 } }"
     "layer { lstm { hidden: 5 layers: 2 bidirectional: true dropout: 0.2 } }"
     "layer { gru { hidden: 4 layers: 2 bidirectional: true } } layer { gru { hidden: 3 } }",
     {5},
     3,
     false,
     true},
    {"vit",
     "layer { conv2d { channels: 12 kernel: 2 stride: 2 } } layer { to_sequence {} }"
     "layer { name: 'e' class_token {} } layer { layer_norm { epsilon: 1e-6 } }"
     "layer { dense { units: 36 } } layer { attention { heads: 3 } }"
     "layer { name: 'p' dense { units: 12 } } layer { name: 'r' add {} input: 'e' input: 'p' }"
     "layer { dense { units: 20 } } layer { gelu {} } layer { dropout { rate: 0.2 } }"
     "layer { layer_norm {} } layer { token_pool {} } layer { dense { units: 3 } }",
     {3, 6, 4}},
    {"vit_mean",
     "layer { to_sequence {} } layer { class_token { positions: false } }"
     "layer { dense { units: 9 } } layer { attention { heads: 1 } }"
     "layer { token_pool { mode: MEAN skip: 1 } } layer { dense { units: 3 } }",
     {5, 3, 2}},
    {"bert",
     "layer { name: 'e' embedding { units: 12 positions: LEARNED segments: 2 segment_end: 2 } }"
     "layer { name: 'n' layer_norm {} } layer { dense { units: 36 } }"
     "layer { attention { heads: 3 padding_token: 1 } } layer { name: 'p' dense { units: 12 } }"
     "layer { add {} input: 'n' input: 'p' } layer { layer_norm {} }"
     "layer { token_pool {} } layer { dense { units: 8 } } layer { tanh {} }"
     "layer { dense { units: 3 } }",
     {7},
     3,
     false,
     false,
     6},
    {"bert_mean",
     "layer { embedding { units: 12 segments: 3 } } layer { dense { units: 36 } }"
     "layer { attention { heads: 2 padding_token: 1 } } "
     "layer { token_pool { mode: MEAN padding_token: 1 } } layer { dense { units: 3 } }",
     {6},
     3,
     false,
     false,
     4},
};

constexpr int64_t kRows = 5;

ModelInput input_of(const Case& c) {
  if (c.vocab_size > 0) return labeled_tokens(c.input[0], c.vocab_size, c.classes);
  if (c.tokens) return token_input(c.input[0], c.classes);
  ModelInput input = classified(c.input, c.classes);
  if (c.classes == 0 || c.soft) input.target = {DType::kF32, {3}, Layout::row_major()};
  return input;
}

ModelConfig config_of(const Case& c) {
  return network(std::string(c.layers) +
                 (c.classes ? "layer { softmax_cross_entropy { label_smoothing: 0.1 } }"
                            : "layer { mean_squared_error {} }"));
}

class Programs : public testing::TestWithParam<Case> {};

class ProgramsOnTargets : public testing::TestWithParam<std::tuple<Case, TestTarget>> {
 protected:
  const Case& tested() const { return std::get<0>(GetParam()); }
  const TestTarget& target() const { return std::get<1>(GetParam()); }
};

// Biases before a batch norm have a gradient of zero, except for rounding.
bool vanishes(const std::vector<float>& gradient) {
  return std::all_of(gradient.begin(), gradient.end(), [](float g) { return std::abs(g) < 1e-6f; });
}

TEST_P(Programs, ReferenceGradientsEqualFiniteDifferences) {
  const ModelInput input = input_of(GetParam());
  TestNetwork net(config_of(GetParam()), input, reference(), {.batch = kRows});
  const TestBatch batch(input, kRows, 3);
  net.run(batch);
  constexpr double kStep = 1e-6;
  for (const Parameter& parameter : net.parameters.all) {
    const auto size = static_cast<size_t>(parameter.spec.shape.elements());
    for (size_t i = 0; i < size; i += std::max<size_t>(1, size / 7)) {
      net.run(batch);
      const double analytic = net.exact_gradient(parameter, i) * kRows;
      const double here = net.exact_value(parameter, i);
      const auto loss_at = [&](double value) {
        net.exact_value(parameter, i) = value;
        net.run(batch);
        return net.metric(ops::kMetricLoss);
      };
      const double numeric = (loss_at(here + kStep) - loss_at(here - kStep)) / (2 * kStep);
      net.exact_value(parameter, i) = here;
      EXPECT_NEAR(analytic, numeric, 1e-6 + 1e-5 * std::abs(numeric))
          << parameter.name << " element " << i;
    }
  }
}

TEST_P(ProgramsOnTargets, AgreeWithTheReference) {
  const ModelInput input = input_of(tested());
  for (int64_t rows : {int64_t{1}, kRows, int64_t{32}}) {
    SCOPED_TRACE(rows);
    TestNetwork exact(config_of(tested()), input, reference(), {.batch = rows});
    TestNetwork fast(config_of(tested()), input, target(), {.batch = rows});
    const TestBatch batch(input, rows, 4);
    // One row is padding, except if there is only one, since batch norm needs a row.
    exact.state.valid_rows = fast.state.valid_rows =
        static_cast<int32_t>(std::max<int64_t>(1, rows - 1));
    exact.run(batch);
    fast.run(batch);
    EXPECT_NEAR(fast.metric(ops::kMetricLoss), exact.metric(ops::kMetricLoss),
                target().loss * exact.metric(ops::kMetricLoss));
    if (target().dtype == DType::kF32) {
      EXPECT_EQ(fast.metric(ops::kMetricTop1), exact.metric(ops::kMetricTop1));
    }
    EXPECT_EQ(fast.metric(ops::kMetricSamples), exact.state.valid_rows);
    for (size_t p = 0; p < exact.parameters.all.size(); ++p) {
      const Parameter& wanted = exact.parameters.all[p];
      const Parameter& got = fast.parameters.all[p];
      ASSERT_EQ(got.name, wanted.name);
      EXPECT_LT(relative_error(fast.value(got), exact.value(wanted)), 1e-6) << got.name;
      const auto gradient = exact.gradient(wanted);
      if (vanishes(gradient)) continue;
      EXPECT_LT(relative_error(fast.gradient(got), gradient), target().gradients) << got.name;
    }
    EXPECT_LT(relative_error(full_gradient(fast), full_gradient(exact)), target().gradient);
    for (size_t r = 0; r < exact.parameters.running_stats.size(); ++r) {
      EXPECT_LT(relative_error(fast.running_stat(fast.parameters.running_stats[r]),
                               exact.running_stat(exact.parameters.running_stats[r])),
                target().running_stats)
          << exact.parameters.running_stats[r].name;
    }
  }
}

// The output is row-major f32, whatever the layout and precision of the last layer.
TEST_P(ProgramsOnTargets, OutputEqualsTheReference) {
  const ModelInput input = input_of(tested());
  const CompileOptions options{.batch = kRows, .training = false, .output = true};
  TestNetwork exact(config_of(tested()), input, reference(), options);
  TestNetwork fast(config_of(tested()), input, target(), options);
  const TestBatch batch(input, kRows, 4);
  exact.run(batch);
  fast.run(batch);
  ASSERT_EQ(exact.output().size(), static_cast<size_t>(kRows * 3 * input.labels_per_sample()));
  EXPECT_LT(relative_error(fast.output(), exact.output()), target().gradient);
  EXPECT_EQ(fast.metric(ops::kMetricSamples), kRows);
}

TEST_P(ProgramsOnTargets, AccumulatedGradientsAddUp) {
  const ModelInput input = input_of(tested());
  TestNetwork once(config_of(tested()), input, target(), {.batch = kRows});
  TestNetwork twice(config_of(tested()), input, target(), {.batch = kRows, .accumulate = true});
  const TestBatch batch(input, kRows, 5);
  once.run(batch);
  twice.run(batch, /*clear_gradients=*/true);
  twice.run_again(batch);
  // Of gpt's, only `once` has the gradient of GELU right after the product that it is fused with.
  // Computed in f32, their result is then rounded to bf16 once instead of twice.
  const double tolerance = target().dtype == DType::kF32 ? 1e-3 : 8e-3;
  for (size_t p = 0; p < once.parameters.all.size(); ++p) {
    std::vector<float> doubled = once.gradient(once.parameters.all[p]);
    for (float& g : doubled) g *= 2;
    if (vanishes(doubled)) continue;
    EXPECT_LT(relative_error(twice.gradient(twice.parameters.all[p]), doubled), tolerance)
        << once.parameters.all[p].name;
  }
}

TEST_P(ProgramsOnTargets, GradientsBecomeFinalInTheOrderOfTheArray) {
  const ModelInput input = input_of(tested());
  TestNetwork net(config_of(tested()), input, target(), {.batch = kRows});
  net.run(TestBatch(input, kRows, 6));
  EXPECT_TRUE(std::is_sorted(net.watermarks.begin(), net.watermarks.end()));
  ASSERT_FALSE(net.watermarks.empty());
  EXPECT_EQ(net.watermarks.back(), net.parameters.elements);
  // The ranges of parameters are disjoint and follow the metrics.
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const Parameter& parameter : net.parameters.all) {
    EXPECT_GE(parameter.end - parameter.begin, parameter.spec.shape.elements());
    ranges.emplace_back(parameter.begin, parameter.end);
  }
  std::sort(ranges.begin(), ranges.end());
  int64_t end = ops::kMetricCount;
  for (auto [begin, next] : ranges) {
    EXPECT_GE(begin, end);
    end = next;
  }
  EXPECT_LE(end, net.parameters.elements);
}

// With a limit of one byte all that saves memory is repeated; with others a part of it.
TEST_P(ProgramsOnTargets, RecomputationChangesNothing) {
  const ModelInput input = input_of(tested());
  const TestBatch batch(input, kRows, 6);
  TestNetwork plain(config_of(tested()), input, target(), {.batch = kRows});
  plain.run(batch);
  const size_t bytes = plain.program->activation_bytes();
  for (const size_t limit : {size_t{1}, bytes * 3 / 4, bytes - 1}) {
    SCOPED_TRACE(limit);
    TestNetwork limited(config_of(tested()), input, target(),
                        {.batch = kRows, .activation_limit = limit});
    limited.run(batch);
    EXPECT_LE(limited.program->activation_bytes(), bytes);
    EXPECT_EQ(limited.metric(ops::kMetricLoss), plain.metric(ops::kMetricLoss));
    EXPECT_EQ(full_gradient(limited), full_gradient(plain));
    for (size_t r = 0; r < plain.parameters.running_stats.size(); ++r) {
      EXPECT_EQ(limited.running_stat(limited.parameters.running_stats[r]),
                plain.running_stat(plain.parameters.running_stats[r]));
    }
  }
}

// As with ZeRO, where ranks have equal parts of every bucket and receive the parameters late.
TEST_P(ProgramsOnTargets, BucketsInEqualPartsChangeNothing) {
  constexpr int64_t kMultiple = 3 * 32;
  const ModelInput input = input_of(tested());
  const auto bucket_ends = [](std::span<const int64_t> ends) {
    return std::vector(ends.begin(), ends.end());
  };
  TestNetwork plain(config_of(tested()), input, target(), {.batch = kRows});
  TestNetwork parts(config_of(tested()), input, target(),
                    {.batch = kRows, .bucket_ends = bucket_ends, .bucket_multiple = kMultiple});
  const TestBatch batch(input, kRows, 6);
  plain.run(batch);
  parts.run_with_late_parameters(batch);
  EXPECT_EQ(parts.metric(ops::kMetricLoss), plain.metric(ops::kMetricLoss));
  EXPECT_EQ(parts.parameters.bucket_ends.back(), parts.parameters.trained_elements);
  for (const int64_t end : parts.parameters.bucket_ends) EXPECT_EQ(end % kMultiple, 0);
  const size_t last = parts.parameters.bucket_ends.size() - 1;
  for (size_t p = 0; p < plain.parameters.all.size(); ++p) {
    const Parameter& parameter = parts.parameters.all[p];
    EXPECT_EQ(parts.gradient(parameter), plain.gradient(plain.parameters.all[p])) << parameter.name;
    const size_t bucket = bucket_of(parts.parameters, parameter);
    EXPECT_LE(parameter.end, parts.parameters.bucket_ends[bucket]) << parameter.name;
    if (parameter.dtype != parts.parameters.dtype) {
      EXPECT_EQ(bucket, last) << parameter.name;
    }
  }
}

// first_not_finite() checks all values that instructions write, and none from before.
TEST_P(ProgramsOnTargets, FirstNotFiniteFindsNothingInFiniteValues) {
  const ModelInput input = input_of(tested());
  TestNetwork net(config_of(tested()), input, target(), {.batch = kRows});
  net.state.valid_rows = kRows - 1;
  const TestBatch batch(input, kRows, 4);
  const auto found = net.first_not_finite(batch);
  EXPECT_FALSE(found) << found->what;
  const auto watermarks = net.watermarks;
  const auto gradient = full_gradient(net);
  net.run(batch);
  EXPECT_EQ(net.watermarks, watermarks);
  EXPECT_EQ(full_gradient(net), gradient);
}

TEST_P(ProgramsOnTargets, FirstNotFiniteNamesTheParameter) {
  const ModelInput input = input_of(tested());
  const TestBatch batch(input, kRows, 4);
  const auto network = [&] {
    return std::make_unique<TestNetwork>(config_of(tested()), input, target(),
                                         CompileOptions{.batch = kRows});
  };
  const size_t parameters = network()->parameters.all.size();
  for (size_t p = 0; p < parameters; ++p) {
    const auto net = network();
    const Parameter& parameter = net->parameters.all[p];
    std::vector<float> values = net->value(parameter);
    values[values.size() / 2] = -std::numeric_limits<float>::infinity();
    net->set_value(parameter, values);
    const auto found = net->first_not_finite(batch);
    ASSERT_TRUE(found) << parameter.name;
    EXPECT_EQ(found->what, "parameter '" + parameter.name + "' is not finite (-inf)");
  }
}

INSTANTIATE_TEST_SUITE_P(All, Programs, testing::ValuesIn(kCases),
                         [](const auto& tested) { return std::string(tested.param.name); });
INSTANTIATE_TEST_SUITE_P(All, ProgramsOnTargets,
                         testing::Combine(testing::ValuesIn(kCases), testing::ValuesIn(targets())),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param).name) + "_on_" +
                                  std::get<1>(tested.param).name;
                         });

}  // namespace
}  // namespace trireme::model
