// How much memory recomputation saves, and at what cost.
#include <algorithm>
#include <string>

#include "model/compile.h"
#include "model/program.h"
#include "tests/model/harness.h"

namespace trireme::model {
namespace {

struct Case {
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

  const char* name;
  ModelInput input;
  int64_t rows;
  double reduction;  // the memory can be divided by this number at least
};

class Recompute : public testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<const Program> compile(size_t limit) {
    Parameters parameters;
    const Case& c = GetParam();
    const Graph graph = build_graph(zoo(c.name), c.input);
    return Program::compile(graph, *backend_, {.batch = c.rows, .activation_limit = limit},
                            parameters);
  }

 private:
  std::unique_ptr<Device> device_ = create_cpu_device(1);
  std::unique_ptr<ops::Backend> backend_ = ops::create_cpu_backend(*device_);
};

struct Cost {
  int64_t operations = 0;
  double flops = 0;
  double bytes = 0;
};

Cost cost_of(const Program& program, bool repeats) {
  Cost cost;
  for (const InstructionReport& instruction : program.instructions()) {
    if (instruction.repeats() != repeats) continue;
    ++cost.operations;
    cost.flops += instruction.flops;
    cost.bytes += instruction.bytes;
  }
  return cost;
}

TEST_P(Recompute, NothingIsRepeatedIfThePlanFits) {
  const size_t bytes = compile(0)->activation_bytes();
  EXPECT_EQ(cost_of(*compile(bytes), true).operations, 0);
  EXPECT_GT(cost_of(*compile(bytes - 1), true).operations, 0);
}

// A copy has the plan of the original: libraries choose no other algorithm for it, whose results
// might be rounded differently.
TEST_P(Recompute, CopiesHaveThePlanOfTheOriginal) {
  const size_t bytes = compile(0)->activation_bytes();
  Parameters parameters;
  const Case& c = GetParam();
  const CompiledNetwork network = compile_network(
      build_graph(zoo(c.name), c.input), *backend_,
      {.batch = c.rows, .activation_limit = static_cast<size_t>(bytes / c.reduction)}, parameters);
  int copies = 0, convolutions = 0;
  for (size_t i = 0; i < network.instructions.size(); ++i) {
    const Instruction& copy = network.instructions[i];
    if (copy.repeated < 0) continue;
    const auto original = static_cast<size_t>(copy.repeated);
    ASSERT_LT(original, network.forward_instructions);
    EXPECT_EQ(copy.plan, network.instructions[original].plan);
    EXPECT_EQ(network.operations[i].plan, network.operations[original].plan);
    EXPECT_EQ(copy.node, network.instructions[original].node);
    ++copies;
    convolutions += std::holds_alternative<ops::Conv2dForward>(copy.op);
  }
  EXPECT_GT(copies, 0);
  if (std::string_view(c.name) == "resnet50") {
    EXPECT_GT(convolutions, 0);
  }
}

// The cheap operations come first, and a lower limit never costs less.
TEST_P(Recompute, CostGrowsAsTheLimitFalls) {
  const size_t bytes = compile(0)->activation_bytes();
  Cost before;
  for (double factor = 1.25; factor <= GetParam().reduction; factor += 0.25) {
    SCOPED_TRACE(factor);
    const auto limit = static_cast<size_t>(static_cast<double>(bytes) / factor);
    const auto program = compile(limit);
    EXPECT_LE(program->activation_bytes(), limit);
    const Cost cost = cost_of(*program, true);
    const Cost once = cost_of(*program, false);
    EXPECT_GE(cost.bytes, before.bytes * 0.9);  // a choice is good, not the best
    EXPECT_LE(cost.bytes, once.bytes / 3);
    EXPECT_LE(cost.flops, once.flops / 3);  // backward takes two thirds
    if (factor < 1.5) {
      EXPECT_LE(cost.flops, once.flops / 100);
    }
    before = cost;
  }
}

TEST_P(Recompute, AnImpossibleLimitGivesTheSmallestPlan) {
  const size_t bytes = compile(0)->activation_bytes();
  EXPECT_LE(static_cast<double>(compile(1)->activation_bytes()),
            static_cast<double>(bytes) / GetParam().reduction);
}

INSTANTIATE_TEST_SUITE_P(Networks, Recompute,
                         testing::Values(Case{"gpt-mini", token_input(128, 65), 4, 5},
                                         Case{"resnet18-cifar", classified({3, 32, 32}, 10), 32, 2},
                                         Case{"resnet50", classified({3, 224, 224}, 1000), 2, 3},
                                         Case{"vgg11-bn", classified({3, 224, 224}, 10), 2, 1.5}),
                         [](const auto& tested) {
                           std::string name = tested.param.name;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace trireme::model
