#include "model/stages.h"

#include <gtest/gtest.h>

#include <map>

#include "core/error.h"
#include "tests/model/harness.h"

namespace trireme::model {
namespace {

constexpr int64_t kRows = 3;
constexpr uint64_t kMicroBatches = 3;
const std::vector<Port> kStagePorts{Port::kStageInput, Port::kStageOutput,
                                    Port::kStageOutputGradient, Port::kStageInputGradient};

struct Network {
  std::string name;
  ModelConfig config;
  ModelInput input;
};

// A residual branch, a value that several layers read, dropout and running statistics.
Network branches() {
  return {"branches",
          network("layer { name: 'a' conv2d { channels: 8 kernel: 3 padding: 1 } }"
                  "layer { name: 'b' batch_norm {} } layer { name: 'c' relu {} }"
                  "layer { name: 'd' conv2d { channels: 8 kernel: 3 padding: 1 } }"
                  "layer { name: 'e' batch_norm {} } layer { name: 'f' dropout { rate: 0.3 } }"
                  "layer { name: 'g' add {} input: 'f' input: 'c' } layer { name: 'h' relu {} }"
                  "layer { name: 'i' concat {} input: 'h' input: 'a' }"
                  "layer { name: 'j' max_pool { kernel: 2 stride: 2 } }"
                  "layer { name: 'k' flatten {} } layer { name: 'l' dense { units: 5 } }"
                  "layer { name: 'm' softmax_cross_entropy {} }"),
          classified({3, 6, 6}, 5)};
}

Network transformer(const std::string& name) {
  ModelConfig config = zoo(name);
  config.mutable_zoo()->set_blocks(2);
  config.mutable_zoo()->set_width(16);
  config.mutable_zoo()->set_heads(2);
  return {name, config, token_input(8, 11)};
}

std::vector<Network> networks() {
  return {branches(),
          {"resnet", zoo("resnet20"), classified({3, 8, 8}, 10)},
          transformer("llama-mini")};
}

// One stage with its memory. Ports are bound to buffers of their own.
struct StageRun {
  StageRun(const Network& network, const TestTarget& target, const Stage& stage)
      : net(network.config, network.input, target,
            {.batch = kRows, .accumulate = true, .stage = stage}) {}

  struct InFlight {
    TestNetwork::InFlight run;
    std::map<Port, Buffer> ports;
  };
  InFlight& start(const TestBatch& batch) {
    InFlight& started = in_flight.emplace_back(InFlight{net.in_flight(batch), {}});
    for (const Port port : kStagePorts) {
      Buffer& buffer = started.ports[port] = net.device().allocate(net.program->port_bytes(port));
      if (net.device().kind() == DeviceKind::kCpu) {
        std::memset(buffer.data(), 0xFF, buffer.bytes());
      }
      started.run.context.bind(port, buffer.data());
    }
    return started;
  }

  TestNetwork net;
  std::vector<InFlight> in_flight;
};

class Pipeline {
 public:
  Pipeline(const Network& network, const TestTarget& target, const std::vector<int>& begins) {
    for (int i = 0; i <= static_cast<int>(begins.size()); ++i) {
      stages_.push_back(std::make_unique<StageRun>(network, target, Stage{begins, i}));
      stages_.back()->in_flight.reserve(kMicroBatches);
      stages_.back()->net.begin_accumulation();
    }
    for (uint64_t m = 0; m < kMicroBatches; ++m) {
      for (const auto& stage : stages_) stage->start(TestBatch(network.input, kRows, m));
    }
  }

  // All micro-batches are in flight on all stages at the same time.
  void run() {
    for (size_t m = 0; m < kMicroBatches; ++m) {
      for (size_t s = 0; s < stages_.size(); ++s) {
        if (s > 0) transfer(m, s - 1, Port::kStageOutput, s, Port::kStageInput);
        context(m, s).forward(stages_[s]->net.stream());
      }
    }
    for (size_t m = 0; m < kMicroBatches; ++m) {
      for (size_t s = stages_.size(); s-- > 0;) {
        if (s + 1 < stages_.size()) {
          transfer(m, s + 1, Port::kStageInputGradient, s, Port::kStageOutputGradient);
        }
        context(m, s).backward(stages_[s]->net.stream(), {});
      }
    }
    for (const auto& stage : stages_) stage->net.stream().synchronize();
  }

  TestNetwork& stage(size_t s) { return stages_[s]->net; }
  size_t stages() const { return stages_.size(); }

 private:
  Context& context(size_t m, size_t s) { return stages_[s]->in_flight[m].run.context; }

  void transfer(size_t m, size_t from, Port from_port, size_t to, Port to_port) {
    stages_[from]->net.stream().synchronize();
    const Buffer& source = stages_[from]->in_flight[m].ports[from_port];
    const Buffer& target = stages_[to]->in_flight[m].ports[to_port];
    ASSERT_EQ(source.bytes(), target.bytes());
    ASSERT_GT(source.bytes(), 0u);
    TestNetwork& net = stages_[to]->net;
    net.device().copy(target.data(), source.data(), source.bytes(), net.stream());
    net.stream().synchronize();
  }

  std::vector<std::unique_ptr<StageRun>> stages_;
};

// Accumulates the gradients of the same micro-batches in the whole network.
void accumulate(TestNetwork& whole, const Network& network) {
  whole.begin_accumulation();
  for (uint64_t m = 0; m < kMicroBatches; ++m) {
    const TestNetwork::InFlight batch = whole.in_flight(TestBatch(network.input, kRows, m));
    batch.context.forward(whole.stream());
    batch.context.backward(whole.stream(), {});
    whole.stream().synchronize();
  }
}

TestNetwork whole_network(const Network& network, const TestTarget& target) {
  return {network.config, network.input, target, {.batch = kRows, .accumulate = true}};
}

class StagesTest : public testing::TestWithParam<TestTarget> {
 protected:
  void expect_equal(const Network& network, const std::vector<int>& begins) {
    SCOPED_TRACE(testing::PrintToString(begins));
    TestNetwork whole = whole_network(network, GetParam());
    accumulate(whole, network);
    Pipeline pipeline(network, GetParam(), begins);
    pipeline.run();
    EXPECT_EQ(pipeline.stage(pipeline.stages() - 1).metric(ops::kMetricLoss),
              whole.metric(ops::kMetricLoss));
    size_t parameters = 0, running_stats = 0;
    for (size_t s = 0; s < pipeline.stages(); ++s) {
      TestNetwork& stage = pipeline.stage(s);
      for (const Parameter& parameter : stage.parameters.all) {
        const Parameter& same = whole.parameters.all[static_cast<size_t>(parameter.index)];
        ASSERT_EQ(parameter.name, same.name);
        EXPECT_EQ(stage.gradient(parameter), whole.gradient(same)) << parameter.name;
        ++parameters;
      }
      for (const RunningStatistic& value : stage.parameters.running_stats) {
        const RunningStatistic& same =
            whole.parameters.running_stats[static_cast<size_t>(value.index)];
        EXPECT_EQ(stage.running_stat(value), whole.running_stat(same)) << value.name;
        ++running_stats;
      }
    }
    EXPECT_EQ(parameters, whole.parameters.all.size());
    EXPECT_EQ(running_stats, whole.parameters.running_stats.size());
  }
};

TEST_P(StagesTest, ComputeWhatTheWholeNetworkComputes) {
  for (const Network& network : networks()) {
    SCOPED_TRACE(network.name);
    const std::vector<Cut> cuts = whole_network(network, GetParam()).program->cuts();
    ASSERT_GE(cuts.size(), 3u);
    const auto node = [&](size_t i) { return cuts[i * (cuts.size() - 1) / 4].node; };
    expect_equal(network, {node(2)});
    expect_equal(network, {node(0), node(2)});
    expect_equal(network, {node(0), node(2), node(4)});
  }
}

TEST_P(StagesTest, EveryCutOfBranchesWorks) {
  const std::vector<Cut> cuts = whole_network(branches(), GetParam()).program->cuts();
  EXPECT_GE(cuts.size(), 8u);
  for (const Cut& cut : cuts) {
    expect_equal(branches(), {cut.node});
    EXPECT_GT(cut.forward_bytes, 0u);
    EXPECT_GT(cut.backward_bytes, 0u);
  }
}

TEST_P(StagesTest, PortsHaveTheBytesOfTheCuts) {
  const Network network = branches();
  for (const Cut& cut : whole_network(network, GetParam()).program->cuts()) {
    Pipeline pipeline(network, GetParam(), {cut.node});
    const auto bytes = [&](size_t s, Port port) {
      return pipeline.stage(s).program->port_bytes(port);
    };
    EXPECT_EQ(bytes(0, Port::kStageInput), 0u);
    EXPECT_EQ(bytes(0, Port::kStageOutput), cut.forward_bytes);
    EXPECT_EQ(bytes(1, Port::kStageInput), cut.forward_bytes);
    EXPECT_EQ(bytes(1, Port::kStageInputGradient), cut.backward_bytes);
    EXPECT_EQ(bytes(0, Port::kStageOutputGradient), cut.backward_bytes);
  }
}

// Both stages have the shared weight; the sum of their gradients is that of the whole network.
TEST_P(StagesTest, TiedWeightsAreInBothStages) {
  const Network network = transformer("gpt-mini");
  TestNetwork whole = whole_network(network, GetParam());
  accumulate(whole, network);
  const std::vector<Cut> cuts = whole.program->cuts();
  Pipeline pipeline(network, GetParam(), {cuts[cuts.size() / 2].node});
  pipeline.run();
  const Parameter& tied = whole.parameters.all.front();
  const std::vector<float> expected = whole.gradient(tied);
  std::vector<float> sum(expected.size());
  for (size_t s = 0; s < 2; ++s) {
    TestNetwork& stage = pipeline.stage(s);
    ASSERT_EQ(stage.parameters.all.front().name, tied.name);
    const std::vector<float> part = stage.gradient(stage.parameters.all.front());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i], expected[i], 1e-5);
}

// Programs for evaluation use the arrays of the training program's stage.
TEST_P(StagesTest, InferenceUsesTheSameArrays) {
  const Network network = branches();
  const std::vector<Cut> cuts = whole_network(network, GetParam()).program->cuts();
  const std::vector<int> begins{cuts[cuts.size() / 2].node};
  for (int s = 0; s < 2; ++s) {
    TestNetwork net(network.config, network.input, GetParam(),
                    {.batch = kRows, .stage = {begins, s}});
    Parameters parameters = net.parameters;
    const auto inference =
        Program::compile(net.graph(), net.backend(),
                         {.batch = kRows, .training = false, .stage = {begins, s}}, parameters);
    EXPECT_EQ(parameters.elements, net.parameters.elements);
    EXPECT_EQ(inference->port_bytes(s == 0 ? Port::kStageInput : Port::kStageOutput), 0u);
    EXPECT_GT(inference->port_bytes(s == 0 ? Port::kStageOutput : Port::kStageInput), 0u);
    EXPECT_EQ(inference->port_bytes(Port::kStageInputGradient), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, StagesTest, testing::ValuesIn(targets()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace trireme::model
