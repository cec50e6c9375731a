// Runs whose network is divided among ranks (parallel.stages).
#include <fstream>

#include "runs.h"
#include "step_fixture.h"
#include "trainer/step/parallel_choice.h"

namespace trireme::train {
namespace {

// A residual branch, statistics of each micro-batch, and random numbers.
const char* const kBranches = R"(
model { network {
  layer { name: "a" conv2d { channels: 8 kernel: 3 padding: 1 bias: false } }
  layer { name: "b" batch_norm {} }
  layer { name: "c" relu {} }
  layer { name: "d" conv2d { channels: 8 kernel: 3 padding: 1 } }
  layer { name: "e" dropout { rate: 0.2 } }
  layer { name: "f" add {} input: "e" input: "c" }
  layer { name: "g" max_pool { kernel: 2 } }
  layer { name: "h" flatten {} }
  layer { name: "i" dense { units: 24 } }
  layer { name: "j" relu {} }
  layer { name: "k" dense { units: 10 } }
  layer { softmax_cross_entropy { label_smoothing: 0.1 } }
} }
optimizer { sgd { momentum: 0.9 } weight_decay: 1e-3 }
schedule { learning_rate: 0.02 cosine {} warmup { steps: 5 } }
)";

// The head is tied to the embedding, which is in another stage.
const char* const kGpt = R"(
model { network {
  layer { name: "te" embedding { units: 16 positions: LEARNED weight_init { normal { std: 0.1 } } } }
  layer { layer_norm {} }
  layer { dense { units: 48 } }
  layer { attention { heads: 2 causal: true } }
  layer { name: "out" dense { units: 16 } }
  layer { dropout { rate: 0.2 } }
  layer { name: "sum" input: "te" input: "dropout_5" add {} }
  layer { layer_norm {} }
  layer { dense { bias: false tied_to: "te" } }
  layer { softmax_cross_entropy { ignore_index: 5 } }
} }
optimizer { adamw { beta2: 0.99 } weight_decay: 0.1 }
schedule { learning_rate: 0.01 cosine {} warmup { steps: 5 } }
)";

const char* const kWide = R"(
model { zoo { name: "mlp" hidden: [256, 256, 256, 256] } }
optimizer { adamw {} weight_decay: 0.01 }
schedule { learning_rate: 0.003 }
)";

const char* const kOneLayer = R"(
model { network {
  layer { flatten {} }
  layer { dense { units: 10 } }
  layer { softmax_cross_entropy {} }
} }
optimizer { sgd {} }
schedule { learning_rate: 0.02 }
)";

const std::vector<std::string> kShort{"batch.micro=5", "checkpoint.every_steps=7",
                                      "train.epochs=5"};

std::vector<std::string> gpus() {
  auto all = devices();
  std::erase(all, "cpu");
  return all;
}

std::vector<std::string> with(std::vector<std::string> all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

class PipelineTest : public RunTest {
 protected:
  std::string stages(int count) const { return "parallel.stages=" + std::to_string(count); }
  std::string stages() const { return stages(world_->size()); }

  // Runs with one rank and with a stage on each rank.
  void run_both(const std::string& network, const std::string& name,
                const std::vector<std::string>& assignments) {
    const auto all = with(kShort, assignments);
    run_alone(network, name + "-alone", all);
    run(network, name + "-stages", with(all, {stages()}));
  }

  void expect_same_training(const std::string& network, const std::string& name,
                            const std::vector<std::string>& assignments = {}) {
    SCOPED_TRACE(name);
    run_both(network, name, assignments);
    expect_same(name + "-alone", name + "-stages");
  }

  void expect_same(const std::string& a, const std::string& b) {
    EXPECT_EQ(losses(a).size(), 20u);
    EXPECT_EQ(losses(a), losses(b));
    for (const char* part : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_TRUE(file(checkpoint(a, 20) / part) == file(checkpoint(b, 20) / part)) << part;
    }
    EXPECT_EQ(events(a, "eval").back()["eval_loss"], events(b, "eval").back()["eval_loss"]);
  }

  std::vector<std::string> text() const {
    if (world_->rank() == 0) {
      std::ofstream file(root_ / "text.txt");
      for (int i = 0; i < 400; ++i) file << "abcde efgh "[(i * i + i / 7) % 11] << "ed";
    }
    wait_for_all();
    return {"data={root: '" + root_.string() +
                "' text {train_file: 'text.txt' length: 12} holdout: 0.2}",
            "batch.global=10", "batch.micro=2", "train.max_steps=20"};
  }

  // Expects that the configuration is refused without a look at the network and the ranks.
  void expect_invalid(const std::vector<std::string>& assignments, const std::string& part) {
    try {
      config(kBranches, "invalid", assignments);
      ADD_FAILURE() << part;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }

  void expect_predicted_memory(const std::string& text,
                               const std::vector<std::string>& assignments);

  void expect_refused(const std::vector<std::string>& assignments, const std::string& part,
                      const char* network = kBranches) {
    expect_agreed_error([&] { run(network, "refused", with(kShort, assignments)); },
                        ExitCode::kBadConfig, part);
  }
};

TEST_P(PipelineTest, IsBitwiseAccumulation) {
  expect_same_training(kBranches, "momentum");
  expect_same_training(kBranches, "adamw",
                       {"optimizer={adamw {} weight_decay: 0.01 ema {decay: 0.9}}"});
  expect_same_training(kBranches, "frozen", {"model.freeze='a[.].*'"});
  expect_same_training(kBranches, "one-micro-batch", {"batch.micro=50"});
  if (ops::cpu_computes_in(DType::kBF16)) {
    expect_same_training(kBranches, "in-BF16", {"train.precision=BF16"});
  }
}

// The first stage only flattens, and the last of three only computes the loss.
TEST_P(PipelineTest, AStageMayHaveNoParameters) {
  if (world_->size() == 4) GTEST_SKIP() << "the network has no more than 3 stages";
  expect_same_training(kOneLayer, "one-layer");
}

TEST_P(PipelineTest, RefusesImpossibleCuts) {
  if (world_->size() == 3) {
    expect_refused({"parallel={stages: 3 cut_after: ['d', 'a']}"}, "'a' does not come after 'd'");
  }
  if (world_->size() == 4) {
    expect_refused({stages()}, "places where the network can be cut; use at most 3", kOneLayer);
  }
}

// Norms are summed over stages, which rounds differently.
TEST_P(PipelineTest, SumsNormsOverStages) {
  for (const auto& [name, assignment] :
       {std::pair{"clipped", "train.clip_norm=0.1"},
        std::pair{"lamb", "optimizer={lamb {} weight_decay: 0.01}"}}) {
    run_both(kBranches, name, {assignment});
    expect_same_losses(name + std::string("-alone"), name + std::string("-stages"), 20, 1e-6);
  }
}

TEST_P(PipelineTest, SharesTiedWeights) {
  run_both(kGpt, "tied", with(text(), {"train.clip_norm=1"}));
  expect_same_losses("tied-alone", "tied-stages", 20);
}

TEST_P(PipelineTest, ResumesInAnyLayout) {
  run_alone(kBranches, "alone", kShort);
  run_alone(kBranches, "to-stages", with(kShort, {"train.max_steps=10"}));
  run(kBranches, "to-stages", with(kShort, {stages()}));
  expect_same("alone", "to-stages");
  run(kBranches, "to-one", with(kShort, {stages(), "train.max_steps=10"}));
  run_alone(kBranches, "to-one", kShort);
  expect_same("alone", "to-one");
}

TEST_P(PipelineTest, StartsFromInitialValues) {
  run_alone(kBranches, "source", kShort);
  const std::string from =
      "model.init_from='" + (checkpoint("source", 20) / "model.safetensors").string() + "'";
  expect_same_training(kBranches, "fine-tuned", {from, "optimizer={adamw {} ema {decay: 0.9}}"});
}

TEST_P(PipelineTest, CombinesWithReplicas) {
  if (world_->size() != 4) GTEST_SKIP() << "needs 2 stages of 2 replicas";
  // Statistics of micro-batches depend on the number of replicas.
  const auto all = with(kShort, {"batch.global=48"});
  run_alone(kPlain, "alone", all);
  run(kPlain, "grid", with(all, {stages(2)}));
  run(kPlain, "grid-zero1", with(all, {stages(2), "parallel.shard=OPTIMIZER"}));
  expect_same_losses("alone", "grid", 20, 1e-6);
  expect_same_losses("grid", "grid-zero1", 20, 1e-6);
  run(kPlain, "resumed", with(all, {"parallel.shard=OPTIMIZER", "train.max_steps=7"}));
  run(kPlain, "resumed", with(all, {stages(2), "parallel.shard=OPTIMIZER", "train.max_steps=14"}));
  run(kPlain, "resumed", with(all, {stages(4)}));
  expect_same_losses("alone", "resumed", 20, 1e-5);
  run(kGpt, "tied-grid", with(text(), {stages(2), "parallel.shard=OPTIMIZER"}));
  run_alone(kGpt, "tied-alone", text());
  expect_same_losses("tied-alone", "tied-grid", 20);
}

// The first bucket is summed in FP32, the others in BF16, and the copies are in different ones. A
// checkpoint has one of the copies.
TEST_P(PipelineTest, CopiesOfTiedWeightsStayEqual) {
  if (world_->size() != 4) GTEST_SKIP() << "needs 2 stages of 2 replicas";
  const auto all = with(text(), {stages(2), "buckets.precision=BF16", "buckets.first_bytes=256",
                                 "buckets.bytes=512", "buckets.last_bytes=64"});
  run(kGpt, "whole", all);
  run(kGpt, "resumed", with(all, {"train.max_steps=11"}));
  run(kGpt, "resumed", all);
  EXPECT_EQ(losses("whole"), losses("resumed"));
  expect_agreed_error([&] { run(kGpt, "sharded", with(all, {"parallel.shard=OPTIMIZER"})); },
                      ExitCode::kBadConfig, "buckets.precision");
}

TEST_P(PipelineTest, EachStageHasItsPartOfTheMemory) {
  const std::vector<std::string> assignments{"train.device=cpu", stages(), "batch.micro=2"};
  StepFixture fixture(*world_, kBranches + std::string(kCommon), assignments);
  const model::Parameters& own = fixture.step().parameters();
  std::vector<double> count(1);
  for (const model::Parameter& each : own.all) {
    count[0] += static_cast<double>(each.spec.shape.elements());
  }
  EXPECT_LT(count[0], static_cast<double>(own.count()));
  comm::sum(*world_, count);
  StepFixture whole(*world_, kBranches + std::string(kCommon), {"train.device=cpu"});
  EXPECT_EQ(own.count(), whole.step().parameters().count());
  EXPECT_EQ(count[0], static_cast<double>(own.count()));
  EXPECT_TRUE(fixture.step().state().is_distributed());
}

TEST_P(PipelineTest, NamesTheStageWithNumbersThatAreNotFinite) {
  expect_agreed_error(
      [&] {
        run(kBranches, "diverges",
            with(kShort, {stages(), "schedule={learning_rate: 1e30}", "checks.non_finite=STOP"}));
      },
      ExitCode::kFailure, "is not finite");
}

TEST_P(PipelineTest, WarnsOfFewMicroBatches) {
  run(kPlain, "few", with(kShort, {stages(), "batch.micro=50", "train.max_steps=1"}));
  const std::string log = file(folder("few") / "log" / "rank-0.log");
  EXPECT_NE(log.find("a step has 1 micro-batch, fewer than the " + std::to_string(world_->size()) +
                     " pipeline stages"),
            std::string::npos)
      << log;
}

TEST_P(PipelineTest, PredictsTheMemoryOfEachStage) {
  expect_predicted_memory(kWide + std::string(kCommon), {});
  // In a stage, operations work in place that would not in the whole network, and vice versa.
  expect_predicted_memory(kGpt + std::string(kCommon), text());
  expect_predicted_memory(kGpt + std::string(kCommon), with(text(), {"memory.limit_bytes=90000"}));
}

TEST_P(PipelineTest, CutsAfterBlocksAndFusedLayers) {
  if (world_->size() != 2) GTEST_SKIP() << "needs 2 stages";
  const char* const blocks = R"(
model { network {
  layer { name: "x.conv" conv2d { channels: 8 kernel: 3 } }
  layer { name: "x.act" relu {} }
  layer { name: "y.conv" conv2d { channels: 8 kernel: 3 } }
  layer { name: "y.act" relu {} }
  layer { name: "flat" flatten {} }
  layer { name: "xy" dense {} }
  layer { name: "loss" softmax_cross_entropy {} }
} }
schedule { learning_rate: 0.01 }
)";
  const auto first_of_stage_1 = [&](const std::string& name) {
    StepFixture fixture(*world_, blocks + std::string(kCommon),
                        {"train.device=cpu", stages(), "parallel.cut_after=" + name});
    return fixture.graph().nodes[fixture.step().stage().stage.begins[0]].name;
  };
  EXPECT_EQ(first_of_stage_1("x.conv"), "y.conv");
  EXPECT_EQ(first_of_stage_1("x.act"), "y.conv");  // fused into x.conv
  EXPECT_EQ(first_of_stage_1("x"), "y.conv");
  EXPECT_EQ(first_of_stage_1("y"), "flat");
  const auto cut_after = [&](const char* name) {
    return std::vector<std::string>{stages(), std::string("parallel.cut_after=") + name};
  };
  expect_refused(cut_after("y.cnv"), "the network has no layer 'y.cnv'; did you mean 'y.conv'?",
                 blocks);
  expect_refused(cut_after("loss"), "cannot be cut after 'loss'; it can be cut after 'xy'", blocks);
}

TEST(Fastest, PrefersRecomputationToStagesThatDoNotFit) {
  const auto layout = [](size_t bytes, double seconds, bool fits_by_recomputing) {
    LayoutPrediction prediction;
    prediction.stages = {{.bytes = bytes}};
    prediction.step = seconds;
    prediction.fits_by_recomputing = fits_by_recomputing;
    return prediction;
  };
  const auto step = [](const std::vector<LayoutPrediction>& layouts) {
    return fastest(layouts, 100).step;
  };
  EXPECT_EQ(step({layout(200, 3, true), layout(110, 2, false), layout(120, 1, false)}), 3);
  EXPECT_EQ(step({layout(200, 3, true), layout(110, 2, true), layout(90, 4, false)}), 4);
  EXPECT_EQ(step({layout(120, 1, false), layout(110, 2, false)}), 2);
}

void PipelineTest::expect_predicted_memory(const std::string& text,
                                           const std::vector<std::string>& assignments) {
  StepFixture fixture(*world_, text,
                      with({"train.device=cpu", stages(), "batch.micro=2"}, assignments));
  Step& step = fixture.step();
  LayoutPredictor predictor(fixture.config(), fixture.graph(), step.backend(),
                            even_hosts(world_->size(), 1, 1e9), step.memory_limit(),
                            /*max_measured=*/0);
  const LayoutPrediction layout = predictor.predict(world_->size());
  size_t needed = step.memory_bytes().total();
  if (step.program().reads_samples()) {
    const model::ModelInput& sample = fixture.graph().input;
    needed +=
        static_cast<size_t>(step.plan().capacity) * (sample.input.bytes() + sample.target.bytes());
  }
  const auto rank = static_cast<size_t>(world_->rank());
  EXPECT_NEAR(static_cast<double>(layout.stages[rank].bytes), static_cast<double>(needed),
              0.02 * static_cast<double>(needed));
}

// One rank would need 4 MB for parameters, gradients and optimizer state.
TEST_P(PipelineTest, TrainsWhatExceedsTheMemoryOfARank) {
  const std::string limit = "memory.limit_bytes=3000000";
  const auto alone = comm::create_local_communicator();
  EXPECT_THROW(StepFixture(*alone, kWide + std::string(kCommon), {"train.device=cpu", limit}),
               Error);
  run(kWide, "unlimited", with(kShort, {stages()}));
  run(kWide, "limited", with(kShort, {stages(), limit}));
  expect_same("unlimited", "limited");
}

TEST_P(PipelineTest, ChoosesTheNumberOfStages) {
  run(kWide, "chosen", with(kShort, {stages(0), "train.max_steps=2"}));
  const auto chosen = parse_config(file(folder("chosen") / "config.txtpb"), "config.txtpb", {});
  EXPECT_GE(chosen.run.parallel().stages(), 1);
  EXPECT_EQ(world_->size() % chosen.run.parallel().stages(), 0);
  // Where only as many stages as ranks fit, they are chosen.
  const std::string limit = "memory.limit_bytes=3000000";
  run(kWide, "fits", with(kShort, {stages(0), limit, "train.max_steps=2"}));
  EXPECT_GT(parse_config(file(folder("fits") / "config.txtpb"), "config.txtpb", {})
                .run.parallel()
                .stages(),
            1);
  // Stages need fewer samples than ranks.
  run(kPlain, "one-sample", with(kShort, {stages(0), "batch.global=1", "train.max_steps=1"}));
}

TEST_P(PipelineTest, RanksOfAReplicaCanBeNeighbors) {
  if (world_->size() != 4) GTEST_SKIP() << "needs 2 stages of 2 replicas";
  const auto all = with(kShort, {stages(2), "batch.global=48"});
  run(kPlain, "replicas", all);
  run(kPlain, "stages", with(all, {"parallel.neighbors=STAGES"}));
  expect_same("replicas", "stages");
}

// Those between the first and the last have neither memory for samples nor read any.
TEST_P(PipelineTest, OnlyStagesThatUseSamplesReadThem) {
  const std::vector<std::string> assignments{"train.device=cpu", stages(), "batch.micro=2"};
  StepFixture fixture(*world_, kBranches + std::string(kCommon), assignments);
  const bool is_end = world_->rank() == 0 || world_->rank() == world_->size() - 1;
  EXPECT_EQ(fixture.step().program().reads_samples(), is_end);
}

TEST_P(PipelineTest, RefusesWhatItCannotDo) {
  expect_refused({"parallel.stages=7"}, "7 stages need a multiple of 7 ranks");
  expect_invalid({stages(), "parallel.shard=GRADIENTS"}, "GRADIENTS cannot be combined");
  expect_invalid({"parallel={stages: 0 cut_after: ['a']}"}, "requires a number of parallel.stages");
  expect_invalid({"parallel={stages: 2 cut_after: ['a', 'b']}"},
                 "cuts the network into 3 stages, but parallel.stages is 2; set it to 3");
  expect_refused({stages(), "batch.micro=5"}, "statistics over all ranks", kSyncNorm);
}

INSTANTIATE_TEST_SUITE_P(Devices, PipelineTest, testing::Values("cpu"));

// On GPUs, a step with all its passes, transfers and sums is one recording.
class PipelineOnGpuTest : public PipelineTest {
 protected:
  void SetUp() override {
    const int ranks = world_->size();
    if (ranks == 1) GTEST_SKIP() << "one rank has no stages";
    if (query_cuda().devices < ranks) GTEST_SKIP() << "NCCL needs a GPU for each rank";
  }

  // Steps of 20, 20 and 10 samples, so that recorded steps and shorter ones, which are not, take
  // turns.
  static inline const std::vector<std::string> kEightSteps{
      "data.synthetic.count=50", "data.synthetic.eval_count=15", "batch.global=20", "batch.micro=4",
      "train.max_steps=8",       "checkpoint.every_steps=4"};

  // Runs recorded, eagerly, on CPUs and with one rank on a GPU, and compares the results.
  void expect_all_agree(const std::string& network, const std::string& name,
                        const std::vector<std::string>& assignments,
                        const std::vector<std::string>& grid) {
    SCOPED_TRACE(name);
    const auto all = with(assignments, grid);
    run(network, name, all);
    run(network, name + "-eager", with(all, {"train.eager=true"}));
    EXPECT_EQ(trace(name).size(), 8u);
    EXPECT_EQ(trace(name), trace(name + "-eager"));
    for (const char* part : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_TRUE(file(checkpoint(name, 8) / part) == file(checkpoint(name + "-eager", 8) / part));
    }
    EXPECT_EQ(eval_loss(name), eval_loss(name + "-eager"));
    run_alone(network, name + "-alone", assignments);
    expect_same_losses(name + "-alone", name, 8, 1e-5);
    EXPECT_NEAR(eval_loss(name + "-alone"), eval_loss(name), 1e-5);
    if (assignments.back() == "train.precision=FP16") return;  // needs a GPU
    run(network, name + "-cpu", with(all, {"train.device=cpu"}));
    expect_same_losses(name + "-cpu", name, 8, 1e-4);
  }
  double eval_loss(const std::string& name) const {
    return events(name, "eval").back()["eval_loss"];
  }
};

TEST_P(PipelineOnGpuTest, RecordedStepsEqualEagerOnesAndAccumulation) {
  if (world_->size() == 4) GTEST_SKIP() << "the grid of 2 x 2 has a test of its own";
  expect_all_agree(kBranches, "branches", kEightSteps, {stages()});
  expect_all_agree(kBranches, "in-FP16", with(kEightSteps, {"train.precision=FP16"}), {stages()});
}

TEST_P(PipelineOnGpuTest, SharesTiedWeights) {
  if (world_->size() == 4) GTEST_SKIP() << "the grid of 2 x 2 has a test of its own";
  expect_all_agree(kGpt, "tied", with(text(), {"train.max_steps=8", "train.clip_norm=1"}),
                   {stages()});
}

TEST_P(PipelineOnGpuTest, CombinesWithReplicas) {
  if (world_->size() != 4) GTEST_SKIP() << "needs 2 stages of 2 replicas";
  const std::vector<std::string> small_buckets{
      "buckets={first_bytes: 512 bytes: 2048 last_bytes: 512}"};
  const auto assignments = with(kEightSteps, small_buckets);
  expect_all_agree(kPlain, "grid", assignments, {stages(2)});
  expect_all_agree(kPlain, "zero1", assignments, {stages(2), "parallel.shard=OPTIMIZER"});
  expect_all_agree(kGpt, "tied", with(text(), {"train.max_steps=8", "train.clip_norm=1"}),
                   {stages(2), "parallel.shard=OPTIMIZER"});
}

TEST_P(PipelineOnGpuTest, ResumesInAnyLayout) {
  if (world_->size() != 2) GTEST_SKIP() << "the same for any number of stages";
  run_alone(kBranches, "alone", kEightSteps);
  run(kBranches, "resumed", with(kEightSteps, {stages(), "train.max_steps=3"}));
  run_alone(kBranches, "resumed", with(kEightSteps, {"train.max_steps=5"}));
  run(kBranches, "resumed", with(kEightSteps, {stages()}));
  expect_same_losses("alone", "resumed", 8, 1e-5);
}

// All stages skip the same steps, recorded or not.
TEST_P(PipelineOnGpuTest, SkipsAStepThatOverflows) {
  std::vector<std::vector<double>> values;
  for (const char* eager : {"train.eager=false", "train.eager=true"}) {
    StepFixture f(*world_, kBranches + std::string(kCommon),
                  {"train.device=" + GetParam(), stages(), "batch.global=20", "batch.micro=4",
                   eager, "train.precision=FP16"});
    for (int64_t step = 0; step < 8; ++step) {
      const std::vector<double> before = f.values();
      const bool overflows = step == 5;
      const bool scales = f.step().stage().grid.is_last_stage() && overflows;
      f.step().optimizer().set_loss_scale({.scale = scales ? 1 << 24 : 1024.0f}, f.step().stream());
      EXPECT_EQ(f.run(step, 0.1f).loss_scale->skipped, overflows ? 1 : 0) << step;
      const std::vector<double> after = f.values();  // of all stages, on rank 0
      if (world_->rank() == 0) {
        EXPECT_EQ(after == before, overflows) << step;
      }
    }
    values.push_back(f.values());
  }
  EXPECT_EQ(values[0], values[1]);
}

TEST_P(PipelineOnGpuTest, NeedsNccl) {
  expect_refused({"batch.micro=5", stages(), "train.transport=mpi"},
                 "pipeline stages on GPUs need NCCL, but train.transport is mpi");
}

TEST_P(PipelineOnGpuTest, NamesTheStageWithNumbersThatAreNotFinite) {
  expect_agreed_error(
      [&] {
        run(kBranches, "diverges",
            with(kEightSteps,
                 {stages(), "schedule={learning_rate: 1e30}", "checks.non_finite=STOP"}));
      },
      ExitCode::kFailure, "is not finite");
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PipelineOnGpuTest);
INSTANTIATE_TEST_SUITE_P(Devices, PipelineOnGpuTest, testing::ValuesIn(gpus()), device_name);

}  // namespace
}  // namespace trireme::train
