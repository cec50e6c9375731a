// Runs within memory.limit_bytes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include "core/text.h"
#include "counted_memory.h"
#include "runs.h"
#include "step_fixture.h"
#include "trainer/base/process.h"
#include "trainer/step/memory_check.h"
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

  // Runs without a limit and with the lowest possible; on a GPU also without capturing steps.
  void expect_same_training(const std::string& name, const std::vector<std::string>& assignments,
                            const char* network = kSyncNorm) {
    SCOPED_TRACE(name);
    std::vector<std::string> all = assignments;
    all.emplace_back("train.max_steps=8");
    run(network, name + "-plain", all);
    const TrainingProgram least = plan(config(network, name, all), 1);
    EXPECT_NE(recomputation_text(*least.program), "");
    constexpr size_t kSums = 1024;  // of the synchronized batch norm, which the plan lacks
    all.push_back(limit(least.memory.total() + kSums));
    run(network, name + "-limited", all);
    EXPECT_EQ(trace(name + "-plain").size(), 8u);
    EXPECT_EQ(trace(name + "-plain"), trace(name + "-limited"));
    if (GetParam() != "cuda") return;
    all.emplace_back("train.eager=true");
    run(network, name + "-eager", all);
    EXPECT_EQ(trace(name + "-eager"), trace(name + "-limited"));
  }
};

// Deep enough that saved activations take more memory than converting some to FP32, as products of
// BF16 do on some CPUs.
const char* const kDeep = R"(
model { network {
  layer { conv2d { channels: 8 kernel: 3 padding: 1 bias: false } }
  layer { batch_norm { sync: true } } layer { relu {} }
  layer { conv2d { channels: 8 kernel: 3 padding: 1 bias: false } }
  layer { batch_norm { sync: true } } layer { relu {} }
  layer { conv2d { channels: 8 kernel: 3 padding: 1 bias: false } }
  layer { batch_norm { sync: true } } layer { relu {} }
  layer { flatten {} }
  layer { dropout { rate: 0.3 } }
  layer { dense { units: 10 } }
  layer { softmax_cross_entropy {} }
} }
optimizer { adam {} }
schedule { learning_rate: 0.01 }
)";

// Fused with a product, an activation reads what the product has not rounded yet.
const char* const kGelu = R"(
model { network {
  layer { average_pool { kernel: 2 } }
  layer { flatten {} }
  layer { dense { units: 48 } } layer { gelu_tanh {} } layer { dropout { rate: 0.3 } }
  layer { dense { units: 64 } } layer { gelu {} }
  layer { dense { units: 32 } } layer { gelu_tanh {} }
  layer { dense { units: 64 } } layer { gelu_tanh {} }
  layer { dense { units: 16 } } layer { gelu {} }
  layer { dense { units: 10 } } layer { softmax_cross_entropy {} }
} }
optimizer { adam {} }
schedule { learning_rate: 0.01 }
)";

TEST_P(MemoryTest, RecomputationChangesNothing) {
  expect_same_training("plain", {});
  expect_same_training("accumulated", {"batch.micro=5"});
  expect_same_training("frozen", {"model.freeze='conv2d_0[.].*'"});
  expect_same_training("sharded", {"parallel.shard=OPTIMIZER"});
  expect_same_training("gradients-sharded", {"parallel.shard=GRADIENTS", "batch.micro=5"});
  if (GetParam() == "cuda" || ops::cpu_computes_in(DType::kBF16)) {
    expect_same_training("in-BF16", {"train.precision=BF16"}, kDeep);
    expect_same_training("gelu-in-BF16", {"train.precision=BF16", "batch.micro=25"}, kGelu);
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
      GetParam() == "cpu" ? plan(config, 1).memory.of(RankMemory::Use::kBatches) : 0;
  constexpr double kAlignment = 1024;
  EXPECT_NEAR(static_cast<double>(allocated + batches), static_cast<double>(least), kAlignment);
}

// A step whose memory is counted.
struct CountedStep {
  CountedStep(const Config& config, comm::Communicator& ranks)
      : device(create_device(config, ranks)),
        backend(ops::create_cpu_backend(device)),
        dataset(open_data(config, data::Part::kTraining)),
        graph(build_network(config, dataset->spec())),
        world(ranks.split(0, ranks.rank()), device.count()),
        step(config, graph, *backend, world) {
    step.initialize();
  }

  test::CountedDevice device;
  std::unique_ptr<ops::Backend> backend;
  std::unique_ptr<data::Dataset> dataset;
  model::Graph graph;
  test::CountedCommunicator world;
  Step step;
};

class CountedMemoryTest : public MemoryTest {
 protected:
  static Config config_with(const std::vector<std::string>& more) {
    std::vector<std::string> assignments{"train.device=cpu",
                                         "batch.global=512",
                                         "data.synthetic.count=512",
                                         "optimizer={adam {}}",
                                         "model.network.layer[0].conv2d.channels=64",
                                         "model.network.layer[3].dense.units=64",
                                         "data.synthetic.classes=64",
                                         "buckets.bytes=400000"};
    assignments.insert(assignments.end(), more.begin(), more.end());
    return parse_config(kStepConfig, "test", assignments);
  }
};

// What the device and the communicators really allocate is what was planned.
TEST_P(CountedMemoryTest, AllocatesWhatIsPlanned) {
  using Use = RankMemory::Use;
  const auto expect_planned = [&](const std::string& shard, size_t limit_bytes) {
    SCOPED_TRACE(shard + " " + std::to_string(limit_bytes));
    std::vector<std::string> assignments{"parallel.shard=" + shard};
    if (limit_bytes > 0) assignments.push_back(limit(limit_bytes));
    const Config config = config_with(assignments);
    const RankMemory planned = plan(config, limit_bytes).memory;
    CountedStep counted(config, *world_);
    const auto expect_near = [](size_t got, size_t wanted) {
      EXPECT_NEAR(static_cast<double>(got), static_cast<double>(wanted),
                  0.02 * static_cast<double>(wanted));
    };
    // On a CPU the loader has the batches.
    expect_near(counted.device.count().in_use, planned.total() - planned.of(Use::kBatches));
    expect_near(counted.step.memory_bytes().optimizer, planned.of(Use::kOptimizer));
    expect_near(counted.step.memory_bytes().gradients, planned.of(Use::kGradients));
    return planned;
  };
  const RankMemory plain = expect_planned("NONE", 0);
  expect_planned("NONE", plan(config_with({}), 1).memory.total());
  const auto part = static_cast<double>(plain.of(Use::kOptimizer)) / world_->size();
  for (const char* shard : {"OPTIMIZER", "GRADIENTS"}) {
    const RankMemory sharded = expect_planned(shard, 0);
    EXPECT_NEAR(static_cast<double>(sharded.of(Use::kOptimizer)), part, 0.02 * part);
  }
}

// Rank 0 gathers the state of other ranks in the memory of the activations or, if a tensor is
// larger, with memory for this tensor.
TEST_P(CountedMemoryTest, GathersStateInTheMemoryOfActivations) {
  for (const int64_t batch : {int64_t{512}, int64_t{world_->size()}}) {
    CountedStep counted(
        config_with({"parallel.shard=OPTIMIZER", "batch.global=" + std::to_string(batch)}),
        *world_);
    test::MemoryCount& count = counted.device.count();
    const size_t before = count.peak = count.in_use;
    size_t largest = 0;
    for (const StateArrays::Array& array : counted.step.state().optimizer()) {
      for (const StateArrays::Tensor& tensor : array.tensors) {
        std::vector<float> values(static_cast<size_t>(tensor.spec.shape.elements()));
        counted.step.state().get(tensor, values);
        largest = std::max(largest, tensor.spec.bytes());
      }
    }
    const bool fits = counted.step.activations().size() >= largest;
    EXPECT_EQ(fits, batch == 512);
    EXPECT_LE(count.peak - before, fits ? 0 : largest);
  }
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

// Several micro-batches need work memory to add gradients, more than smaller ones save here.
// Recomputing the many activations saves more than the workspaces that a GPU needs for products.
TEST_P(MemoryTest, RecomputesIfNoMicroBatchFitsWithout) {
  const char* const network = R"(
model { network {
  layer { flatten {} }
  layer { dense { units: 97 } } layer { gelu {} } layer { dropout { rate: 0.3 } }
  layer { gelu {} } layer { dropout { rate: 0.3 } } layer { gelu {} } layer { dropout { rate: 0.3 } }
  layer { gelu {} } layer { dropout { rate: 0.3 } } layer { gelu {} } layer { dropout { rate: 0.3 } }
  layer { layer_norm {} }
  layer { dense { units: 53 } } layer { relu {} } layer { dropout { rate: 0.2 } }
  layer { dense { units: 10 } } layer { softmax_cross_entropy {} }
} }
optimizer { adam {} }
schedule { learning_rate: 0.01 }
)";
  const std::vector<std::string> whole{"batch.global=" + std::to_string(7 * world_->size())};
  const Config one_pass = config(network, "one-pass", whole);
  const size_t least = plan(one_pass, 1).memory.total();
  ASSERT_LT(least, plan(one_pass, 0).memory.total());
  std::vector<std::string> chosen = whole;
  chosen.insert(chosen.end(), {"batch.micro=-1", limit(least)});
  EXPECT_LE(plan(config(network, "largest", chosen), least).memory.total(), least);
}

// What the program itself needs is not for plans.
TEST_P(MemoryTest, LeavesRoomForTheProgram) {
  const Config settings =
      parse_config(kStepConfig, "test", std::vector<std::string>{"train.device=" + GetParam()});
  const auto device = create_device(settings, *world_);
  const auto backend = create_backend(settings, *device);
  const auto dataset = open_data(settings, data::Part::kTraining);
  const model::Graph graph = build_network(settings, dataset->spec());
  const RankMemory needed = plan(settings, 1).memory;
  const auto require = [&](size_t spare, const Config& config) {
    MemoryBudget budget{2 * needed.total() + 1000 + spare, "this host has", 2, /*checkpoint=*/1000,
                        /*unplanned=*/500};
    const TrainingTarget target{config,
                                graph,
                                *backend,
                                world_->size(),
                                memory_limit(config, budget),
                                steps_in_flight(device->kind())};
    require_fits(target, needed, budget);
  };
  EXPECT_NO_THROW(require(1000, settings));
  try {
    require(998, settings);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(fmt::format(
                                  "but have {}: this host has",
                                  format_bytes(static_cast<double>(2 * needed.total() - 2)))));
    EXPECT_THAT(error.what(), testing::HasSubstr("of which the copy of a checkpoint takes 1000 B "
                                                 "and the program takes 500 B per rank"));
  }
  // A configured limit replaces the room for the program, but there is no more memory than that.
  Config limited = settings;
  limited.run.mutable_memory()->set_limit_bytes(int64_t{1} << 40);
  EXPECT_NO_THROW(require(0, limited));
  EXPECT_THROW(require(-2, limited), ConfigError);
}

// What the process has and what it reserves later counts, unlike in a control group.
TEST_P(MemoryTest, ALimitOfTheAddressSpaceLeavesThePlanTheRest) {
  if (GetParam() != "cpu") GTEST_SKIP() << "memory of a GPU is not limited by it";
  const Config settings =
      parse_config(kStepConfig, "test", std::vector<std::string>{"train.device=cpu"});
  const auto device = create_device(settings, *world_);
  const auto dataset = open_data(settings, data::Part::kTraining);
  const model::Graph graph = build_network(settings, dataset->spec());
  constexpr size_t kFree = size_t{1} << 30, kLater = size_t{256} << 20,
                   kRounding = size_t{64} << 20;
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  rlimit limited = before;
  limited.rlim_cur = static_cast<rlim_t>(address_bytes()) + kFree;
  setrlimit(RLIMIT_AS, &limited);
  const MemoryBudget budget = memory_budget_of(*device, /*local_ranks=*/2, settings, graph);
  setrlimit(RLIMIT_AS, &before);
  EXPECT_THAT(budget.name, testing::HasSubstr("ulimit -v"));
  EXPECT_EQ(budget.ranks, 1);  // each process has this limit for itself
  EXPECT_LE(budget.of_plan(), kFree - kLater);
  EXPECT_GT(budget.of_plan(), kFree - kLater - kRounding);
}

TEST_P(MemoryTest, TheChosenMicroBatchIsInTheResolvedConfiguration) {
  run(kPlain, "chosen", {"batch.micro=-1", "train.max_steps=1"});
  const std::string resolved = file(folder("chosen") / "config.txtpb");
  EXPECT_THAT(resolved, testing::HasSubstr("micro: "));
  EXPECT_THAT(resolved, testing::Not(testing::HasSubstr("micro: -1")));
  // The checkpoint has it, too, so that a run that resumes with another number says so.
  EXPECT_THAT(file(checkpoint("chosen", 1) / "state.json"),
              testing::Not(testing::HasSubstr("micro: -1")));
  // The memory of an emulated GPU is not known.
  if (GetParam() == "cpu" || create_device(config(kPlain, "device"), *world_)->load()) {
    EXPECT_THAT(resolved, testing::HasSubstr("limit_bytes: "));
  }
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

// The settings that a message names are those with which the plan fits, and the closest ones.
TEST_P(MemoryTest, NamesSettingsThatFit) {
  const std::vector<std::string> assignments{"train.device=" + GetParam(), "batch.global=2000",
                                             "data.synthetic.count=2000", "optimizer={adam {}}"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = assignments;
    all.insert(all.end(), more.begin(), more.end());
    return parse_config(kStepConfig, "test", all);
  };
  const auto settings_within = [&](const Config& config, size_t bytes) {
    const auto device = create_device(config, *world_);
    const auto backend = create_backend(config, *device);
    const auto dataset = open_data(config, data::Part::kTraining);
    const model::Graph graph = build_network(config, dataset->spec());
    return settings_that_fit(
        {config, graph, *backend, world_->size(), bytes, steps_in_flight(device->kind())});
  };
  const Config whole = with({});
  const Config single = with({"batch.micro=1"});
  const Config sharded = with({"batch.micro=1", "parallel.shard=OPTIMIZER"});
  const size_t least = plan(single, 1).memory.total();
  EXPECT_THAT(settings_within(whole, plan(whole, 1).memory.total() - 1),
              testing::StartsWith("batch.micro: "));
  EXPECT_THAT(settings_within(whole, least), testing::StartsWith("batch.micro: 1 ("));
  EXPECT_EQ(settings_within(whole, 1000), "");
  if (world_->size() == 1) {
    EXPECT_THAT(
        settings_within(single, least - 1),
        testing::StartsWith("parallel.shard: GRADIENTS on 2 ranks with as much memory each ("));
    return;
  }
  EXPECT_THAT(settings_within(single, least - 1),
              testing::StartsWith("parallel.shard: OPTIMIZER ("));
  EXPECT_THAT(settings_within(whole, plan(sharded, 1).memory.total()),
              testing::StartsWith("batch.micro: 1 and parallel.shard: OPTIMIZER ("));
}

TRIREME_ON_ALL_DEVICES(MemoryTest);
INSTANTIATE_TEST_SUITE_P(Cpu, CountedMemoryTest, testing::Values("cpu"), device_name);

}  // namespace
}  // namespace trireme::train
