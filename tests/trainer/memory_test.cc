// Runs within memory.limit_bytes.
#include <gmock/gmock.h>

#include "runs.h"
#include "step_fixture.h"
#include "trainer/step/training_program.h"

namespace trireme::train {
namespace {

std::string limit(size_t bytes) { return "memory.limit_bytes=" + std::to_string(bytes); }

class MemoryTest : public RunTest {
 protected:
  // Returns the plan of a rank with this limit; 0: none, 1: as little as possible.
  TrainingProgram plan(const Config& config, size_t bytes) {
    const auto device = create_device(config, *world_);
    const auto backend = create_backend(config, *device);
    const auto dataset = open_data(config, data::Part::kTraining);
    const model::Graph graph = build_network(config, dataset->spec());
    model::Parameters parameters;
    const TrainingTarget target{config,         graph, *backend,
                                world_->size(), bytes, steps_in_flight(device->kind())};
    return compile_training(target, choose_passes(target), parameters);
  }

  // Runs without a limit and with the lowest possible.
  void expect_same_training(const std::string& name, const std::vector<std::string>& assignments) {
    SCOPED_TRACE(name);
    std::vector<std::string> all = assignments;
    all.emplace_back("train.max_steps=8");
    run(kSyncNorm, name + "-plain", all);
    const TrainingProgram least = plan(config(kSyncNorm, name, all), 1);
    EXPECT_NE(recomputation_text(*least.program), "");
    constexpr size_t kSums = 1024;  // of the synchronized batch norm, which the plan lacks
    all.push_back(limit(least.memory.total() + kSums));
    run(kSyncNorm, name + "-limited", all);
    EXPECT_EQ(trace(name + "-plain").size(), 8u);
    EXPECT_EQ(trace(name + "-plain"), trace(name + "-limited"));
  }
};

TEST_P(MemoryTest, RecomputationChangesNothing) {
  expect_same_training("plain", {});
  expect_same_training("accumulated", {"batch.micro=5"});
  expect_same_training("frozen", {"model.freeze='conv2d_0[.].*'"});
  expect_same_training("sharded", {"parallel.shard=OPTIMIZER"});
  expect_same_training("gradients-sharded", {"parallel.shard=GRADIENTS", "batch.micro=5"});
  if (GetParam() == "cuda" || ops::cpu_computes_in(DType::kBF16)) {
    expect_same_training("in-BF16", {"train.precision=BF16"});
  }
  if (GetParam() == "cuda") expect_same_training("in-FP16", {"train.precision=FP16"});
}

TEST_P(MemoryTest, AllocatesWhatIsPlanned) {
  const std::vector<std::string> assignments{"train.device=" + GetParam(), "batch.global=22000",
                                             "data.synthetic.count=22000"};
  const Config config = parse_config(kStepConfig, "test", assignments);
  const size_t least = plan(config, 1).memory.total();
  std::vector<std::string> limited = assignments;
  limited.push_back(limit(least));
  StepFixture fixture(*world_, kStepConfig, limited);
  const StepMemory memory = fixture.step().memory_bytes();
  const size_t allocated =
      memory.parameters + memory.gradients + memory.optimizer + memory.activations + memory.batches;
  // On a CPU, batches are in the memory of the loader.
  const size_t batches =
      GetParam() == "cpu" ? plan(config, 1).memory.of(RankMemory::Cause::kBatches) : 0;
  constexpr double kAlignment = 1024;
  EXPECT_NEAR(static_cast<double>(allocated + batches), static_cast<double>(least), kAlignment);
}

TEST_P(MemoryTest, ChoosesTheLargestMicroBatchThatFits) {
  const std::vector<std::string> assignments{"train.device=" + GetParam(), "batch.global=2000",
                                             "data.synthetic.count=2000"};
  const auto with_micro = [&](int64_t micro, const std::string& more = "") {
    std::vector<std::string> all = assignments;
    all.push_back("batch.micro=" + std::to_string(micro));
    if (!more.empty()) all.push_back(more);
    return all;
  };
  const auto bytes_with = [&](int64_t micro) {
    return plan(parse_config(kStepConfig, "test", with_micro(micro)), 0).memory.total();
  };
  const int64_t share = 2000 / world_->size();
  for (const int64_t wanted : {share, (share + 2) / 3, int64_t{1}}) {
    StepFixture fixture(*world_, kStepConfig, with_micro(kLargestMicro, limit(bytes_with(wanted))));
    const BatchPlan& chosen = fixture.step().plan();
    EXPECT_GE(chosen.micro, wanted);
    EXPECT_LE(bytes_with(chosen.micro), bytes_with(wanted));
    EXPECT_EQ(chosen.micro * chosen.passes, chosen.capacity);
    EXPECT_GE(chosen.capacity, share);
    EXPECT_EQ(recomputation_text(fixture.step().program()), "");
  }
}

TEST_P(MemoryTest, TheChosenMicroBatchIsInTheResolvedConfiguration) {
  run(kPlain, "chosen", {"batch.micro=-1", "train.max_steps=1"});
  EXPECT_NE(file(folder("chosen") / "config.txtpb").find("micro: "), std::string::npos);
  EXPECT_EQ(file(folder("chosen") / "config.txtpb").find("micro: -1"), std::string::npos);
}

TEST_P(MemoryTest, RefusesALimitThatCannotBeReached) {
  const Config impossible = config(kSyncNorm, "impossible", {limit(1000)});
  try {
    train(impossible, *world_, {.quiet = true});
    FAIL() << "trained";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("but memory.limit_bytes is 1000 B"));
    EXPECT_EQ(error.code(), ExitCode::kBadConfig);
  }
}

TRIREME_ON_ALL_DEVICES(MemoryTest);

}  // namespace
}  // namespace trireme::train

int main(int argc, char** argv) { return trireme::test::run_on_all_ranks(argc, argv); }
