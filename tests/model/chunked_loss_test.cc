// Networks whose logits are so large that only some rows of them exist at a time, against the same
// networks with smaller micro-batches, whose logits exist as a whole.
#include <algorithm>

#include "tests/model/harness.h"

namespace trireme::model {
namespace {

constexpr int64_t kLength = 64, kVocabulary = 16384;
constexpr int64_t kRows = 40;      // 80 MiB of logits in BF16
constexpr int64_t kPartRows = 10;  // 40 MiB of logits in FP32
constexpr int32_t kValidRows = 37;

struct Head {
  friend void PrintTo(const Head& head, std::ostream* out) { *out << head.name; }
  const char* name;
  const char* layer;
};

const Head kHeads[] = {{"tied", "dense { bias: false tied_to: 'wte' }"}, {"with_bias", "dense {}"}};

class ChunkedLossTest : public testing::TestWithParam<std::tuple<Head, TestTarget>> {
 protected:
  std::unique_ptr<TestNetwork> compile(CompileOptions options) const {
    const ModelConfig config = network(
        "layer { name: 'wte' embedding { units: 8 } } layer { layer_norm {} }"
        "layer { dense { units: 8 } } layer { gelu_tanh {} } layer { " +
        std::string(std::get<0>(GetParam()).layer) +
        " } layer { softmax_cross_entropy { label_smoothing: 0.1 ignore_index: 5 } }");
    auto net = std::make_unique<TestNetwork>(config, input(), target(), options);
    net->state.valid_rows = std::min(net->state.valid_rows, kValidRows);
    net->state.loss_gradient_scale = 0.01f;
    return net;
  }
  const TestTarget& target() const { return std::get<1>(GetParam()); }
  static ModelInput input() { return token_input(kLength, kVocabulary); }

  // Runs the batch in parts, of which the last one has padding. Returns the sum of the losses.
  static double run_in_parts(TestNetwork& net, const TestBatch& batch) {
    double loss = 0;
    for (int64_t first = 0; first < kRows; first += kPartRows) {
      const TestBatch part = batch.part(kRows, static_cast<size_t>(first), kPartRows);
      net.state.valid_rows = std::min<int32_t>(kPartRows, kValidRows - static_cast<int32_t>(first));
      first == 0 ? net.run(part, /*clear_gradients=*/true) : net.run_again(part);
      loss += net.metric(ops::kMetricLoss);
    }
    return loss;
  }

  const TestBatch batch_{input(), kRows, 3};
};

bool is_chunked(const TestNetwork& net) {
  return net.program->listing().find("linear_cross_entropy") != std::string::npos;
}

TEST_P(ChunkedLossTest, EqualsPartsThatAreNotChunked) {
  const auto whole = compile({.batch = kRows});
  const auto parts = compile({.batch = kPartRows, .accumulate = true});
  ASSERT_TRUE(is_chunked(*whole));
  ASSERT_FALSE(is_chunked(*parts));
  whole->run(batch_);
  const double loss = run_in_parts(*parts, batch_);
  EXPECT_NEAR(whole->metric(ops::kMetricLoss), loss, target().loss * loss);
  EXPECT_EQ(whole->metric(ops::kMetricSamples), kValidRows);
  for (size_t p = 0; p < whole->parameters.all.size(); ++p) {
    const Parameter& parameter = whole->parameters.all[p];
    EXPECT_LT(relative_error(whole->gradient(parameter), parts->gradient(parts->parameters.all[p])),
              target().gradients)
        << parameter.name;
  }
  EXPECT_TRUE(std::is_sorted(whole->watermarks.begin(), whole->watermarks.end()));
  EXPECT_EQ(whole->watermarks.back(), whole->parameters.elements);
}

TEST_P(ChunkedLossTest, AccumulatesGradients) {
  const auto once = compile({.batch = kRows});
  const auto twice = compile({.batch = kRows, .accumulate = true});
  once->run(batch_);
  twice->run(batch_, /*clear_gradients=*/true);
  twice->run_again(batch_);
  for (size_t p = 0; p < once->parameters.all.size(); ++p) {
    std::vector<float> doubled = once->gradient(once->parameters.all[p]);
    for (float& g : doubled) g *= 2;
    EXPECT_LT(relative_error(twice->gradient(twice->parameters.all[p]), doubled), 1e-3)
        << once->parameters.all[p].name;
  }
}

// A program that returns the logits needs all of them.
TEST_P(ChunkedLossTest, EvaluationEqualsThatWithLogits) {
  const auto chunked = compile({.batch = kRows, .training = false});
  const auto plain = compile({.batch = kRows, .training = false, .output = true});
  ASSERT_TRUE(is_chunked(*chunked));
  ASSERT_FALSE(is_chunked(*plain));
  EXPECT_LT(chunked->program->activation_bytes(), plain->program->activation_bytes());
  chunked->run(batch_);
  plain->run(batch_);
  for (const ops::Metric metric : {ops::kMetricLoss, ops::kMetricTop1, ops::kMetricTop5,
                                   ops::kMetricSamples, ops::kMetricLabels}) {
    EXPECT_NEAR(chunked->metric(metric), plain->metric(metric), 1e-6 * plain->metric(metric));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ChunkedLossTest,
                         testing::Combine(testing::ValuesIn(kHeads), testing::ValuesIn(targets())),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param).name) + "_on_" +
                                  std::get<1>(tested.param).name;
                         });

// A head with an activation computes its output as a whole.
TEST(ChunkedLoss, NeedsALinearHead) {
  const ModelInput input = classified({2}, 1 << 17);
  for (const char* activation : {"", "layer { relu {} }"}) {
    TestNetwork net(network(std::string("layer { dense { units: 131072 } }") + activation +
                            "layer { softmax_cross_entropy {} }"),
                    input, cpu(), {.batch = 144, .training = false});
    EXPECT_EQ(is_chunked(net), *activation == 0);
  }
}

}  // namespace
}  // namespace trireme::model
