// #13: a run that is resumed several times in the middle of an epoch, each time with another number
// of ranks, must equal an uninterrupted run.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/faults/faults.h"
#include "trainer/checkpoint/safetensors.h"

namespace trireme::testing {
namespace {

using Json = nlohmann::json;

class Elastic : public FaultTest {
 protected:
  // Trains on 4 ranks, then 1, 3 and 2, up to each of the given steps.
  void train_in_parts(const std::string& config, const std::vector<int>& ends) {
    config_ = write_config(config);
    const std::vector<int> ranks = {4, 1, 3, 2};
    for (size_t i = 0; i < ends.size(); ++i) {
      SCOPED_TRACE(ranks[i]);
      const Outcome outcome =
          run(train({"--set", "train.max_steps=" + std::to_string(ends[i])}), ranks[i]);
      ASSERT_EQ(outcome.code, 0) << outcome.error;
      if (i > 0) {
        EXPECT_EQ(lines_with(outcome.out, "resumed from").size(), 1u) << outcome.out;
      }
    }
  }
};

// The loss of sample i is 2^i in every step, since nothing is learned. The loss of a step times its
// number of samples thus has one bit per sample.
TEST_F(Elastic, UsesEverySampleOncePerEpoch) {
  constexpr int kSamples = 18;
  constexpr int kStepsPerEpoch = 5;  // of 4 samples, the last of 2
  std::string rows;
  for (int i = 0; i < kSamples; ++i) {
    rows += "0," + std::to_string(std::sqrt(std::ldexp(1.0, i))) + "\n";
  }
  scratch_.write("rows.csv", rows);
  train_in_parts(R"(
model { network {
  layer { dense { units: 1 bias: false } }
  layer { mean_squared_error {} }
} }
data { root: ")" + scratch_.path().string() +
                     R"(" csv { train_file: "rows.csv" eval_file: "rows.csv" regression: true } }
batch { global: 4 }
train { epochs: 4 eval_every_epochs: 0 }
schedule { learning_rate: 0 }
checkpoint { every_epochs: 0 }
)",
                 {3, 7, 13, 20});
  const std::vector<std::string> losses = losses_of(run_dir());
  ASSERT_EQ(losses.size(), 4u * kStepsPerEpoch);
  std::vector<int64_t> first_steps;
  for (size_t epoch = 0; epoch < 4; ++epoch) {
    int64_t seen = 0;
    for (size_t step = 0; step < kStepsPerEpoch; ++step) {
      const int samples = step + 1 == kStepsPerEpoch ? 2 : 4;
      const double loss = std::stod(losses[epoch * kStepsPerEpoch + step]);
      const auto bits = static_cast<int64_t>(std::llround(loss * samples));
      EXPECT_EQ(__builtin_popcountll(static_cast<uint64_t>(bits)), samples) << bits;
      EXPECT_EQ(seen & bits, 0) << "epoch " << epoch << ", step " << step;
      seen |= bits;
      if (step == 0) first_steps.push_back(bits);
    }
    EXPECT_EQ(seen, (int64_t{1} << kSamples) - 1) << "epoch " << epoch;
  }
  EXPECT_NE(first_steps[0], first_steps[1]);  // each epoch has an order of its own
}

TEST_F(Elastic, LossesEqualThoseOfAnUninterruptedRun) {
  const std::string config = R"(
model { zoo { name: "mlp" hidden: [64] dropout: 0.1 } }
data { synthetic { shape: [1, 12, 12] count: 400 eval_count: 50 noise: 0.3 } }
batch { global: 32 }
train { epochs: 4 eval_every_epochs: 0 }
optimizer { sgd { momentum: 0.9 } }
schedule { learning_rate: 0.02 cosine {} }
checkpoint { every_epochs: 0 }
)";
  const std::string straight = (scratch_ / "straight").string();
  const Outcome outcome =
      run({"train", scratch_.write("straight.txtpb", config), "--run-dir", straight}, 4);
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  train_in_parts(config, {7, 20, 33, 52});

  const std::vector<std::string> wanted = losses_of(straight);
  const std::vector<std::string> got = losses_of(run_dir());
  ASSERT_EQ(wanted.size(), 52u);  // 13 an epoch, the last a short one
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double want = std::stod(wanted[i]);
    EXPECT_NEAR(std::stod(got[i]), want, 1e-5 * std::abs(want)) << "step " << i + 1;
  }
  EXPECT_LT(std::stod(wanted.back()), 0.7 * std::stod(wanted.front()));  // it did learn something
  // The mean over the samples of the last epoch, through three interruptions.
  const auto loss_of = [](const std::filesystem::path& run_dir) {
    return Json::parse(read_file(run_dir / "summary.json"))["train_loss"].get<double>();
  };
  EXPECT_NEAR(loss_of(run_dir()), loss_of(straight), 1e-5);
}

// The ranks of a run, what they shard and its pipeline stages.
struct RunLayout {
  int ranks;
  std::string shard;
  int stages = 1;
  std::string name() const { return fmt::format("{}-{}-{}", ranks, shard, stages); }
};

std::map<std::string, std::vector<float>> tensors_of(const std::filesystem::path& checkpoint) {
  std::map<std::string, std::vector<float>> tensors;
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const train::SafetensorsReader reader(checkpoint / file);
    for (const std::string& name : reader.names()) tensors[name] = reader.read(name);
  }
  return tensors;
}

void expect_near(const std::map<std::string, std::vector<float>>& got,
                 const std::map<std::string, std::vector<float>>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (const auto& [name, values] : wanted) {
    const auto found = got.find(name);
    ASSERT_TRUE(found != got.end() && found->second.size() == values.size()) << name;
    float largest = 0;
    for (const float value : values) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(found->second[i], values[i], 1e-5F * largest) << name << " at " << i;
    }
  }
}

TEST_F(Elastic, EveryLayoutResumesEveryOther) {
  const std::vector<RunLayout> layouts = {{1, "NONE"},      {4, "NONE"},    {2, "OPTIMIZER"},
                                          {3, "GRADIENTS"}, {2, "NONE", 2}, {4, "NONE", 2},
                                          {3, "NONE", 3}};
  config_ = write_config(R"(
model { zoo { name: "mlp" hidden: [30, 20] dropout: 0.1 } }
data { synthetic { shape: [1, 5, 5] count: 100 eval_count: 12 noise: 0.3 } }
batch { global: 12 }
train { max_steps: 20 eval_every_epochs: 0 }
optimizer { adam {} ema { decay: 0.9 } }
schedule { learning_rate: 0.01 }
checkpoint { every_epochs: 0 }
)");
  const auto train_to = [&](int step, const RunLayout& layout,
                            const std::filesystem::path& folder) {
    const Outcome outcome =
        run({"train", config_, "--run-dir", folder.string(), "--set",
             "train.max_steps=" + std::to_string(step), "--set", "parallel.shard=" + layout.shard,
             "--set", "parallel.stages=" + std::to_string(layout.stages)},
            layout.ranks);
    ASSERT_EQ(outcome.code, 0) << outcome.error;
  };
  const auto straight = scratch_ / "straight";
  train_to(20, layouts[0], straight);
  const std::vector<std::string> wanted = losses_of(straight);
  for (const RunLayout& first : layouts) {
    const auto begun = scratch_ / first.name();
    train_to(10, first, begun);
    for (const RunLayout& second : layouts) {
      const std::string name = begun.string() + "-to-" + second.name();
      SCOPED_TRACE(name);
      std::filesystem::copy(begun, name, std::filesystem::copy_options::recursive);
      train_to(20, second, name);
      const std::vector<std::string> got = losses_of(name);
      ASSERT_EQ(got.size(), wanted.size());
      for (size_t i = 0; i < wanted.size(); ++i) {
        const double want = std::stod(wanted[i]);
        EXPECT_NEAR(std::stod(got[i]), want, 1e-5 * std::abs(want)) << "step " << i + 1;
      }
      const std::filesystem::path newest = "checkpoints/step-00000020";
      expect_near(tensors_of(std::filesystem::path(name) / newest), tensors_of(straight / newest));
    }
  }
}

}  // namespace
}  // namespace trireme::testing
