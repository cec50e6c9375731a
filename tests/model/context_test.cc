#include "model/context.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/model/harness.h"

namespace trireme::model {
namespace {

constexpr int64_t kRows = 4;

ModelConfig network_with_state() {
  return network(
      "layer { conv2d { channels: 6 kernel: 3 padding: 1 } } layer { batch_norm {} }"
      "layer { relu {} } layer { dropout { rate: 0.3 } } layer { flatten {} }"
      "layer { dense { units: 5 } } layer { softmax_cross_entropy {} }");
}

// The results of two micro-batches.
struct Outcome {
  std::vector<std::vector<float>> gradients;
  std::vector<std::vector<float>> running_stats;
  double loss = 0;
  bool operator==(const Outcome&) const = default;
};

Outcome outcome_of(TestNetwork& net) {
  Outcome outcome;
  for (const Parameter& parameter : net.parameters.all) {
    outcome.gradients.push_back(net.gradient(parameter));
  }
  for (const RunningStatistic& value : net.parameters.running_stats) {
    outcome.running_stats.push_back(net.running_stat(value));
  }
  outcome.loss = net.metric(ops::kMetricLoss);
  return outcome;
}

class ContextTest : public testing::TestWithParam<TestTarget> {};

TEST_P(ContextTest, OverlappingMicroBatchesEqualConsecutiveOnes) {
  const ModelInput input = classified({3, 6, 6}, 5);
  const TestBatch first(input, kRows, 1), second(input, kRows, 2);
  const auto run = [&](bool overlapping) {
    TestNetwork net(network_with_state(), input, GetParam(), {.batch = kRows, .accumulate = true});
    const TestNetwork::InFlight a = net.in_flight(first);
    const TestNetwork::InFlight b = net.in_flight(second);
    net.begin_accumulation();
    a.context.forward(net.stream());
    if (overlapping) b.context.forward(net.stream());
    a.context.backward(net.stream(), {});
    if (!overlapping) b.context.forward(net.stream());
    b.context.backward(net.stream(), {});
    net.stream().synchronize();
    return outcome_of(net);
  };
  const Outcome separate = run(false);
  EXPECT_GT(separate.loss, 0);
  EXPECT_EQ(run(true), separate);
}

TEST_P(ContextTest, RejectsUnboundPorts) {
  const ModelInput input = classified({3, 6, 6}, 5);
  TestNetwork net(network_with_state(), input, GetParam(), {.batch = kRows});
  TestNetwork::InFlight in_flight = net.in_flight(TestBatch(input, kRows, 1));
  in_flight.context.bind(Port::kTarget, nullptr);
  EXPECT_THROW(in_flight.context.forward(net.stream()), Error);
}

INSTANTIATE_TEST_SUITE_P(Targets, ContextTest, testing::ValuesIn(targets()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace trireme::model
