// Runs whose optimizer state is sharded (parallel.shard).
#include <fstream>

#include "runs.h"
#include "step_fixture.h"

namespace trireme::train {
namespace {

// Several buckets, of which the number of ranks does not divide all.
const std::vector<std::string> kSmallBuckets{
    "buckets={first_bytes: 512 bytes: 2048 last_bytes: 512}", "checkpoint.every_steps=7",
    "train.epochs=5"};
const std::string kZero1 = "parallel.shard=OPTIMIZER";
const std::string kZero2 = "parallel.shard=GRADIENTS";

std::vector<std::string> with(std::vector<std::string> all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

class ZeroTest : public RunTest {
 protected:
  void run_all(const std::string& name, const std::vector<std::string>& assignments) {
    const auto all = with(kSmallBuckets, assignments);
    run(kOwnNorm, name + "-plain", all);
    run(kOwnNorm, name + "-zero1", with(all, {kZero1}));
    run(kOwnNorm, name + "-zero2", with(all, {kZero2}));
  }
  void expect_same_training(const std::string& name, const std::vector<std::string>& assignments) {
    SCOPED_TRACE(name);
    run_all(name, assignments);
    expect_same(name + "-plain", name + "-zero1");
    expect_same(name + "-plain", name + "-zero2");
  }
  // If norms are summed over the parts of ranks, they are rounded differently.
  void expect_similar_training(const std::string& name,
                               const std::vector<std::string>& assignments) {
    SCOPED_TRACE(name);
    run_all(name, assignments);
    expect_same_losses(name + "-plain", name + "-zero1", 20, 1e-6);
    expect_same_losses(name + "-plain", name + "-zero2", 20, 1e-6);
  }

  // CPU ranks of one host sum in the same order in all-reduce and reduce-scatter; NCCL may not.
  void expect_same(const std::string& a, const std::string& b) {
    if (GetParam() != "cpu") return expect_same_losses(a, b, 20, 1e-6);
    EXPECT_EQ(losses(a).size(), 20u);
    EXPECT_EQ(losses(a), losses(b));
    for (const char* part : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_TRUE(file(checkpoint(a, 20) / part) == file(checkpoint(b, 20) / part)) << part;
    }
    EXPECT_EQ(events(a, "eval").back()["eval_loss"], events(b, "eval").back()["eval_loss"]);
  }
};

TEST_P(ZeroTest, EveryOptimizerTrainsAsWithoutIt) {
  expect_same_training("momentum", {"optimizer={sgd {momentum: 0.9} weight_decay: 1e-3}"});
  expect_same_training("adamw", {"optimizer={adamw {} weight_decay: 0.01 ema {decay: 0.9}}"});
  expect_same_training("groups",
                       {"optimizer={lion {} weight_decay: 0.01 group {parameters: '.*[.]bias' "
                        "learning_rate_scale: 2}}"});
  expect_similar_training("lamb", {"optimizer={lamb {} weight_decay: 0.01}"});
}

TEST_P(ZeroTest, WorksWithEveryWayToTrain) {
  expect_same_training("frozen", {"model.freeze='conv2d_0[.].*'"});
  expect_same_training("summed-in-BF16", {"buckets.precision=BF16"});
  if (GetParam() == "cuda" || ops::cpu_computes_in(DType::kBF16)) {
    expect_same_training("in-BF16", {"train.precision=BF16"});
  }
  if (GetParam() == "cuda") expect_same_training("in-FP16", {"train.precision=FP16"});
  expect_similar_training("clipped", {"train.clip_norm=0.1"});
}

// ZeRO-2 sums each micro-batch over ranks before it adds them up. Adam would amplify the rounding
// of small gradients.
TEST_P(ZeroTest, AccumulatesMicroBatches) {
  run_all("accumulated", {"batch.micro=5", "optimizer={sgd {momentum: 0.9}}"});
  expect_same("accumulated-plain", "accumulated-zero1");
  expect_same_losses("accumulated-plain", "accumulated-zero2", 20, 1e-6);
}

// The kinds of networks that are trained: residual blocks, and attention over embeddings whose
// weights are tied to the last layer.
TEST_P(ZeroTest, TrainsEveryKindOfNetwork) {
  const auto with_model = [](const std::string& model, const std::string& data) {
    return "model { " + model + " } data { " + data +
           " } batch { global: 12 } train { max_steps: 20 } optimizer { adam {} } "
           "schedule { learning_rate: 0.001 } checkpoint { every_epochs: 0 keep_best: false }";
  };
  if (world_->rank() == 0) {
    std::string text;
    for (int i = 0; i < 600; ++i) text += i % 7 == 0 ? "to be or " : "not to be, ";
    std::ofstream(root_ / "input.txt") << text;
  }
  const std::vector<std::pair<std::string, std::string>> networks{
      {"residual",
       with_model("network { layer { conv2d { channels: 8 kernel: 3 padding: 1 bias: false } } "
                  "layer { batch_norm {} } layer { name: 'trunk' relu {} } "
                  "layer { conv2d { channels: 8 kernel: 3 padding: 1 bias: false } } "
                  "layer { name: 'branch' batch_norm {} } "
                  "layer { input: 'trunk' input: 'branch' add {} } layer { relu {} } "
                  "layer { global_pool {} } layer { flatten {} } layer { dense {} } "
                  "layer { softmax_cross_entropy {} } }",
                  "synthetic { shape: [3, 12, 12] count: 240 eval_count: 12 }")},
      {"gpt", with_model("zoo { name: 'gpt-mini' blocks: 2 width: 16 heads: 2 dropout: 0.1 }",
                         "root: '" + root_.string() +
                             "' text { train_file: 'input.txt' length: 8 } holdout: 0.1")}};
  std::vector<std::string> precisions{"FP32"};
  if (GetParam() == "cuda" || ops::cpu_computes_in(DType::kBF16)) precisions.emplace_back("BF16");
  for (const auto& [kind, config] : networks) {
    for (const std::string& precision : precisions) {
      const std::string name = kind + precision;
      SCOPED_TRACE(name);
      for (const std::string& shard : {std::string("parallel.shard=NONE"), kZero1, kZero2}) {
        const std::vector<std::string> assignments{
            "train.device=" + GetParam(), "train.precision=" + precision, shard,
            "buckets={first_bytes: 1024 bytes: 16384 last_bytes: 1024}",
            "run_dir=" + folder(name + shard).string()};
        train(parse_config(config, "test", assignments), *world_,
              {.quiet = true, .wait_for_saves = true});
      }
      expect_same(name + "parallel.shard=NONE", name + kZero1);
      expect_same(name + "parallel.shard=NONE", name + kZero2);
    }
  }
}

TEST_P(ZeroTest, ResumesInAnyLayout) {
  run(kOwnNorm, "straight", kSmallBuckets);
  const auto layouts =
      std::vector<std::pair<std::string, std::string>>{{"parallel.shard=NONE", kZero1},
                                                       {kZero1, "parallel.shard=NONE"},
                                                       {kZero1, kZero2},
                                                       {kZero2, kZero1}};
  for (size_t i = 0; i < layouts.size(); ++i) {
    const std::string name = "resumed" + std::to_string(i);
    run(kOwnNorm, name, with(kSmallBuckets, {layouts[i].first, "train.max_steps=10"}));
    if (world_->rank() == 0) fs::remove_all(checkpoint(name, 10));
    run(kOwnNorm, name, with(kSmallBuckets, {layouts[i].second}));
    expect_same("straight", name);
  }
}

TEST_P(ZeroTest, ResumesARunOfOneRank) {
  run_alone(kSyncNorm, "alone", kSmallBuckets);
  run_alone(kSyncNorm, "resumed", with(kSmallBuckets, {kZero1, "train.max_steps=7"}));
  run(kSyncNorm, "resumed", with(kSmallBuckets, {kZero2}));
  expect_same_losses("alone", "resumed", 20);
}

// A run that resumes and saves at once writes what it has read, whatever ranks and shards wrote it.
TEST_P(ZeroTest, StateIsTheSameInEveryLayout) {
  struct Layout {
    int size;
    std::string shard;
    std::unique_ptr<comm::Communicator> ranks = nullptr;  // the first `size`, and all others
  };
  const int all = world_->size();
  std::vector<Layout> layouts;
  layouts.push_back({1, "parallel.shard=NONE"});
  layouts.push_back({all, "parallel.shard=NONE"});
  layouts.push_back({std::min(all, 2), kZero1});
  layouts.push_back({std::min(all, 3), kZero2});
  for (Layout& layout : layouts) {
    layout.ranks = world_->split(world_->rank() < layout.size ? 0 : 1, world_->rank());
  }
  const auto save = [&](const Layout& layout, const std::string& name, const std::string& resume) {
    if (world_->rank() < layout.size) {
      const std::vector<std::string> assignments{
          layout.shard, "train.max_steps=7",
          "optimizer={adamw {} weight_decay: 0.01 ema {decay: 0.9}}"};
      train(config(kOwnNorm, name, with(kSmallBuckets, assignments)), *layout.ranks,
            {.resume = resume, .quiet = true, .wait_for_saves = true});
    }
    wait_for_all();
  };
  save(layouts[1], "0", "never");
  constexpr size_t kEveryPair[] = {1, 0, 1, 2, 0, 2, 3, 0, 3, 1, 3, 2, 1};
  for (size_t i = 1; i < std::size(kEveryPair); ++i) {
    SCOPED_TRACE(i);
    save(layouts[kEveryPair[i]], std::to_string(i), checkpoint(std::to_string(i - 1), 7).string());
    for (const char* part : {"model.safetensors", "optimizer.safetensors"}) {
      const std::string wanted = file(checkpoint("0", 7) / part);
      EXPECT_FALSE(wanted.empty());
      EXPECT_TRUE(file(checkpoint(std::to_string(i), 7) / part) == wanted) << part;
    }
  }
}

// Two stages of three replicas each have a tensor, in shards of different sizes.
TEST(StateArraysTest, PartsCoverEachElementOnce) {
  using Part = StateArrays::Part;
  const std::vector<Part> parts{{0, 32}, {0, 82}, {32, 64}, {82, 96}, {64, 96}, {96, 96}};
  int64_t end = 0;
  for (const Part& part : StateArrays::without_repetitions(parts)) {
    if (part.begin == part.end) continue;
    EXPECT_EQ(part.begin, end);
    end = part.end;
  }
  EXPECT_EQ(end, 96);
}

TEST_P(ZeroTest, StateIsSharded) {
  const std::vector<std::string> assignments{"train.device=" + GetParam(), "optimizer={adam {}}"};
  StepFixture plain(*world_, kStepConfig, assignments);
  const StepMemory whole = plain.step().memory_bytes();
  const auto ranks = static_cast<size_t>(world_->size());
  for (const std::string& shard : {kZero1, kZero2}) {
    StepFixture zero(*world_, kStepConfig, with(assignments, {shard}));
    const size_t padding = 2 * ranks * 32 * sizeof(float) * zero.step().buckets().size();
    const StepMemory memory = zero.step().memory_bytes();
    EXPECT_NEAR(static_cast<double>(memory.optimizer), static_cast<double>(whole.optimizer / ranks),
                static_cast<double>(padding));
    const size_t buckets = zero.step().program().bucket_bytes();
    EXPECT_EQ(buckets > 0, shard == kZero2);
    const size_t gradients = shard == kZero2 ? whole.gradients / ranks : whole.gradients;
    EXPECT_NEAR(static_cast<double>(memory.gradients - buckets), static_cast<double>(gradients),
                static_cast<double>(padding));
    EXPECT_TRUE(zero.step().state().is_distributed());
  }
}

TRIREME_ON_ALL_DEVICES(ZeroTest);

}  // namespace
}  // namespace trireme::train
