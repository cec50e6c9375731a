// Encoders in complete runs: ranks, resuming, masks and padding.
#include <algorithm>
#include <cmath>
#include <fstream>

#include "runs.h"
#include "trainer/infer/evaluate_checkpoint.h"

namespace trireme::train {
namespace {

// The token 0 is padding, and 1 ends a segment.
const char* const kBert = R"(
model { zoo { name: "bert-mini" blocks: 2 width: 16 heads: 2 dropout: 0.1
              padding_token: 0 segment_end: 1 } }
optimizer { adamw { beta2: 0.99 } weight_decay: 0.1 }
schedule { learning_rate: 0.02 cosine {} warmup { steps: 5 } }
)";

const char* const kVit = R"(
model { zoo { name: "vit-tiny" blocks: 2 width: 16 heads: 2 patch: 4 dropout: 0.1 } }
optimizer { adamw {} weight_decay: 0.1 }
schedule { learning_rate: 0.01 }
)";

class EncoderRunTest : public RunTest {
 protected:
  // Sentences of 1 to 12 tokens, in windows of 12, with a mask of their own.
  std::vector<std::string> tokens(
      const std::vector<std::string>& more = {},
      const std::string& mask = "mask {token: 9 probability: 0.3 keep: [0, 1]}") const {
    if (world_->rank() == 0) {
      std::ofstream file(root_ / "tokens.bin", std::ios::binary);
      for (int row = 0; row < 130; ++row) {
        for (int t = 0; t < 12; ++t) {
          const bool padding = t > row * 5 % 12;
          const uint16_t token = padding ? 0 : t == 4 ? 1 : 2 + (row + t * t) % 7;
          file.write(reinterpret_cast<const char*>(&token), sizeof token);
        }
      }
    }
    wait_for_all();
    std::vector<std::string> all{
        "data={root: '" + root_.string() +
            "' tokens {train: 'tokens.bin' length: 12 vocab_size: 10} holdout: 0.2 " + mask + "}",
        "batch.global=10", "train.clip_norm=1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_P(EncoderRunTest, LossesDoNotDependOnTheNumberOfRanks) {
  run_alone(kBert, "bert-alone", tokens({"train.max_steps=26"}));
  run(kBert, "bert", tokens({"train.max_steps=26", "batch.micro=2"}));
  expect_same_losses("bert-alone", "bert", 26);
  const auto of_alone = events("bert-alone", "eval").back(), of_all = events("bert", "eval").back();
  for (const char* metric : {"eval_loss", "eval_accuracy", "eval_perplexity"}) {
    const auto expected = of_alone[metric].get<double>();
    EXPECT_NEAR(of_all[metric].get<double>(), expected, 1e-4 * expected) << metric;
  }
  run_alone(kVit, "vit-alone", {"train.max_steps=16"});
  run(kVit, "vit", {"train.max_steps=16", "batch.micro=7"});
  expect_same_losses("vit-alone", "vit", 16);
}

TEST_P(EncoderRunTest, RunsAreReproducibleAndResumeInMidEpoch) {
  for (const auto& [network, name, data] :
       {std::tuple{kBert, std::string("bert"), tokens()}, {kVit, "vit", {}}}) {
    std::vector<std::string> steps = data;
    steps.insert(steps.end(), {"train.max_steps=25", "checkpoint.every_steps=11"});
    run(network, name, steps);
    run(network, name + "-again", steps);
    EXPECT_EQ(trace(name), trace(name + "-again"));
    train(config(network, name + "-rest", steps), *world_,
          {.resume = checkpoint(name, 11).string(), .quiet = true});
    const auto whole = trace(name), rest = trace(name + "-rest");
    ASSERT_EQ(rest.size(), 14u);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + 11));
  }
}

TEST_P(EncoderRunTest, EvaluationMasksTheSameTokensEachTime) {
  run(kBert, "run", tokens({"train.max_steps=12"}));
  const auto loss = events("run", "eval").back()["eval_loss"].get<double>();
  const Config config = parse_config(slurp(folder("run") / "config.txtpb"), "config", {});
  const Evaluation result = evaluate_checkpoint(config, *world_, newest("run")).evaluation;
  EXPECT_NEAR(*result.metrics.loss, loss, 1e-5 * loss);
  EXPECT_FALSE(events("run", "eval").back().contains("eval_bits_per_byte"));
}

TEST_P(EncoderRunTest, BertDoesNotPredictTokensThatItSees) {
  const auto attempt = [&](const std::string& mask) {
    return [this, mask] { run(kBert, "bad", tokens({}, mask)); };
  };
  expect_agreed_error(attempt(""), ExitCode::kBadConfig,
                      "sees the next tokens, which are the labels");
  expect_agreed_error(attempt("mask {token: 10}"), ExitCode::kBadConfig,
                      "data.mask.token: 10 is not in the vocabulary of the data, [0, 10)");
}

TRIREME_ON_ALL_DEVICES(EncoderRunTest);

}  // namespace
}  // namespace trireme::train
