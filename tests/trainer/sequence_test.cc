// Language models in complete runs: ranks, resuming, ignored labels, metrics.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <numbers>

#include "runs.h"
#include "trainer/infer/evaluate_checkpoint.h"

namespace trireme::train {
namespace {

// Learned positions and tied weights; the label 5 ('e'), which is frequent, does not count.
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
  layer { softmax_cross_entropy { ignore_index: 5 label_smoothing: 0.05 } }
} }
optimizer { adamw { beta2: 0.99 } weight_decay: 0.1 }
schedule { learning_rate: 0.01 cosine {} warmup { steps: 5 } }
)";

// Documents end with the token 0 (' ').
const char* const kLlama = R"(
model { network {
  layer { name: "te" embedding { units: 16 } }
  layer { rms_norm {} }
  layer { dense { units: 32 bias: false } }
  layer { attention { heads: 2 kv_heads: 1 causal: true rotary {} document_end: 0 } }
  layer { name: "out" dense { units: 16 bias: false } }
  layer { name: "sum" input: "te" input: "out" add {} }
  layer { rms_norm {} }
  layer { dense { units: 32 } }
  layer { swiglu {} }
  layer { dense {} }
  layer { softmax_cross_entropy {} }
} }
optimizer { adamw {} }
schedule { learning_rate: 0.01 }
)";

// Recurrent layers, also in both directions.
const char* const kRecurrent = R"(
model { network {
  layer { embedding { units: 12 } }
  layer { lstm { hidden: 16 layers: 2 dropout: 0.2 } }
  layer { gru { hidden: 8 bidirectional: true } }
  layer { dense {} }
  layer { softmax_cross_entropy {} }
} }
optimizer { adamw { beta2: 0.99 } }
schedule { learning_rate: 0.01 }
)";

// Layers that carry their states from window to window; words end with the token 0 (' ').
const char* const kStateful = R"(
model { network {
  layer { embedding { units: 12 } }
  layer { lstm { hidden: 16 layers: 2 dropout: 0.2 stateful: true } }
  layer { name: "second" gru { hidden: 8 stateful: true document_end: 0 } }
  layer { dense {} }
  layer { softmax_cross_entropy {} }
} }
optimizer { adamw { beta2: 0.99 } }
schedule { learning_rate: 0.01 }
)";

class SequenceTest : public RunTest {
 protected:
  // Evaluation has 241 targets: 20 windows, and one with a single target.
  std::vector<std::string> text(const std::vector<std::string>& more = {}) const {
    if (world_->rank() == 0) {
      std::ofstream file(root_ / "text.txt");
      for (int i = 0; i < 400; ++i) file << "abcde efgh "[(i * i + i / 7) % 11] << "ed";
    }
    wait_for_all();
    std::vector<std::string> all{"data={root: '" + root_.string() +
                                     "' text {train_file: 'text.txt' length: 12 random_offset: "
                                     "true} holdout: 0.2017}",
                                 "batch.global=10", "train.clip_norm=1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_P(SequenceTest, LossesDoNotDependOnTheNumberOfRanks) {
  for (const auto& [network, name] : {std::pair{kGpt, "gpt"},
                                      {kLlama, "llama"},
                                      {kRecurrent, "recurrent"},
                                      {kStateful, "stateful"}}) {
    const std::string alone = std::string(name) + "-alone";
    run_alone(network, alone, text({"train.max_steps=26"}));
    run(network, name, text({"train.max_steps=26", "batch.micro=2"}));
    expect_same_losses(alone, name, 26);
    const auto of_alone = events(alone, "eval").back(), of_all = events(name, "eval").back();
    for (const char* metric : {"eval_loss", "eval_accuracy", "eval_perplexity"}) {
      const auto expected = of_alone[metric].get<double>();
      EXPECT_NEAR(of_all[metric].get<double>(), expected, 1e-4 * expected) << metric;
    }
  }
}

TEST_P(SequenceTest, RunsAreReproducibleAndResumeInMidEpoch) {
  const std::vector<std::string> steps{"train.max_steps=30", "checkpoint.every_steps=11"};
  for (const auto& [network, name] :
       {std::pair{kGpt, "gpt"}, {kRecurrent, "recurrent"}, {kStateful, "stateful"}}) {
    const auto run_name = [prefix = std::string(name)](const char* which) {
      return prefix + which;
    };
    run(network, run_name("-once"), text(steps));
    run(network, run_name("-again"), text(steps));
    EXPECT_EQ(trace(run_name("-once")), trace(run_name("-again")));
    train(config(network, run_name("-rest"), text(steps)), *world_,
          {.resume = checkpoint(run_name("-once"), 11).string(), .quiet = true});
    const auto whole = trace(run_name("-once")), rest = trace(run_name("-rest"));
    ASSERT_EQ(rest.size(), 19u);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + 11));
  }
}

// Within an epoch, of which the last batch is short. The states of all rows are in a checkpoint, in
// a form that does not depend on the number of ranks.
TEST_P(SequenceTest, CarriedStatesResumeOnOtherNumbersOfRanks) {
  const auto steps = text({"train.max_steps=24", "checkpoint.every_steps=11"});
  run_alone(kStateful, "alone", steps);
  run(kStateful, "all", text({"train.max_steps=24", "checkpoint.every_steps=11", "batch.micro=2"}));
  const auto expect_rest = [&](const std::string& name) {
    const std::vector<double> whole = losses("alone"), rest = losses(name);
    ASSERT_EQ(rest.size(), 13u);
    for (size_t i = 0; i < rest.size(); ++i) {
      EXPECT_NEAR(rest[i], whole[i + 11], 2e-5 * whole[i + 11]) << name << " step " << i + 12;
    }
  };
  train(config(kStateful, "more", steps), *world_,
        {.resume = checkpoint("alone", 11).string(), .quiet = true});
  expect_rest("more");
  if (world_->rank() == 0) {
    train(config(kStateful, "fewer", steps), *local_,
          {.resume = checkpoint("all", 11).string(), .quiet = true});
  }
  wait_for_all();
  expect_rest("fewer");
  expect_agreed_error(
      [&] {
        train(config(kStateful, "other", text({"train.max_steps=24", "batch.global=12"})), *world_,
              {.resume = checkpoint("all", 11).string(), .quiet = true});
      },
      ExitCode::kBadConfig, "batch.global: 10 -> 12 cannot change within an epoch");
}

// States are carried in f32 or rounded like activations, and belong to the rows of a rank, not to
// the parameters that ZeRO divides.
TEST_P(SequenceTest, CarriedStatesTrainInEveryPrecisionAndWithShards) {
  std::vector<std::string> precisions{"FP32"};
  if (GetParam() == "cuda" || ops::cpu_computes_in(DType::kBF16)) precisions.emplace_back("BF16");
  for (const std::string& precision : precisions) {
    SCOPED_TRACE(precision);
    const auto run_named = [&](const std::string& name, std::vector<std::string> more,
                               const std::string& resume = "auto") {
      more.insert(more.end(), {"train.max_steps=30", "checkpoint.every_steps=11",
                               "train.precision=" + precision});
      train(config(kStateful, precision + name, text(more)), *world_,
            {.resume = resume, .quiet = true, .wait_for_saves = true});
    };
    const std::vector<std::string> shard{"parallel.shard=OPTIMIZER"};
    run_named("-plain", {});
    run_named("-zero1", shard);
    run_named("-again", shard);
    expect_same_losses(precision + "-plain", precision + "-zero1", 30, 1e-6);
    const auto whole = trace(precision + "-zero1");
    EXPECT_EQ(whole, trace(precision + "-again"));
    run_named("-rest", shard, checkpoint(precision + "-zero1", 11).string());
    const auto rest = trace(precision + "-rest");
    ASSERT_EQ(rest.size(), 19u);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + 11));
  }
  if (precisions.size() == 1) return;
  const std::vector<double> exact = losses("FP32-plain"), rounded = losses("BF16-plain");
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(rounded[i], exact[i], 0.02 * exact[i]) << i;
}

// Without the carried states, the first window of an epoch is the only one with the same loss.
TEST_P(SequenceTest, StatesAreCarriedAndResetByEpoch) {
  const std::string alone = "model.network.layer[1].lstm.stateful=";
  const auto rate = [&](const char* stateful, const char* name) {
    run(kStateful, name,
        text({"train.max_steps=10", "schedule.learning_rate=0", alone + stateful,
              "model.network.layer[1].lstm.dropout=0", "data.text.random_offset=false"}));
    return losses(name);
  };
  // The order of samples is that of the stateful second layer in both cases.
  const std::vector<double> with = rate("true", "with"), without = rate("false", "without");
  EXPECT_NEAR(with[0], without[0], 1e-6);
  for (size_t i = 1; i < 8; ++i) EXPECT_GT(std::abs(with[i] - without[i]), 1e-5) << i;
  EXPECT_NEAR(with[8], with[0], 1e-6);
  EXPECT_NEAR(with[9], with[1], 1e-6);
}

TEST_P(SequenceTest, BadStatefulNetworks) {
  const auto attempt = [&](const std::vector<std::string>& assignments) {
    return [this, assignments] { run(kStateful, "bad", text(assignments)); };
  };
  for (const auto& [assignment, message] :
       {std::pair{"data.shuffle=true", "data.shuffle: samples cannot be shuffled with stateful"},
        {"data.shuffle_window={block: 2 window: 4}", "data.shuffle_window: cannot be set with"},
        {"data.on_bad_record=SKIP", "data.on_bad_record: records cannot be skipped with stateful"},
        {"data.sampling=BALANCED", "data.sampling: cannot be set with stateful"},
        {"model.network.layer[1].lstm.bidirectional=true",
         "lstm.stateful: cannot be combined with bidirectional"},
        {"model.network.layer[2].gru.document_end=9",
         "gru.document_end: 9 is not in the vocabulary of the data, [0, 9)"}}) {
    expect_agreed_error(attempt({assignment}), ExitCode::kBadConfig, message);
  }
}

TEST_P(SequenceTest, EvaluationCountsEveryTargetOnce) {
  run(kLlama, "run", text({"train.max_steps=10"}));
  const auto eval = events("run", "eval").back();
  const double loss = eval["eval_loss"].get<double>();
  EXPECT_NEAR(eval["eval_perplexity"].get<double>(), std::exp(loss), 1e-3 * std::exp(loss));
  EXPECT_NEAR(eval["eval_bits_per_byte"].get<double>(), loss / std::numbers::ln2, 1e-4 * loss);
  EXPECT_FALSE(eval.contains("eval_macro_f1"));
  // The same targets in windows of another length, which the network's positions do not limit: all
  // 241 have the same weight.
  const Config config = parse_config(slurp(folder("run") / "config.txtpb"), "config", {});
  const Evaluation result = evaluate_checkpoint(config, *world_, newest("run")).evaluation;
  EXPECT_EQ(result.samples, 21);
  EXPECT_NEAR(*result.metrics.loss, loss, 1e-5 * loss);
}

// Perplexity was e^(smoothed loss), and bits per byte divided by tokens that do not count.
TEST_P(SequenceTest, PerplexityIsThatOfThePlainLoss) {
  run(kGpt, "run", text({"train.max_steps=10"}));
  const auto eval = events("run", "eval").back();
  const double loss = eval["eval_loss"].get<double>();
  EXPECT_NEAR(eval["eval_perplexity"].get<double>(), std::exp(loss), 1e-9 * std::exp(loss));
  EXPECT_FALSE(eval.contains("eval_bits_per_byte")) << "the label 5 does not count";
  EXPECT_GT(std::abs(eval["eval_objective"].get<double>() - loss), 1e-3);
  const Config plain = parse_config(
      slurp(folder("run") / "config.txtpb"), "config",
      std::vector<std::string>{"model.network.layer[9].softmax_cross_entropy.label_smoothing=0"});
  const Evaluation result = evaluate_checkpoint(plain, *world_, newest("run")).evaluation;
  EXPECT_NEAR(*result.metrics.loss, loss, 1e-5 * loss);
  EXPECT_FALSE(result.metrics.objective);
}

// The loss was 0 and perplexity 1.
TEST_P(SequenceTest, AnEvaluationWithoutALabelMeasuresNothing) {
  if (world_->rank() == 0) spill(root_ / "e.txt", std::string(60, 'a'));
  text();  // writes text.txt
  run(kLlama, "run",
      {"data={root: '" + root_.string() +
           "' text {train_file: 'text.txt' eval_file: 'e.txt' length: 12}}",
       "batch.global=10", "train.max_steps=2",
       "model.network.layer[10].softmax_cross_entropy.ignore_index=1"});  // 'a'
  const auto eval = events("run", "eval").back();
  EXPECT_EQ(eval["samples"], 5);
  for (const char* metric : {"eval_loss", "eval_accuracy", "eval_perplexity"}) {
    EXPECT_FALSE(eval.contains(metric)) << metric;
  }
  EXPECT_NE(file(folder("run") / "log" / "rank-0.log").find("has measured nothing"),
            std::string::npos);
}

TEST_P(SequenceTest, BadNetworks) {
  const auto attempt = [&](const std::string& assignment) {
    return [this, assignment] { run(kGpt, "bad", text({assignment})); };
  };
  expect_agreed_error(attempt("model.network.layer[0].embedding.vocab_size=3"),
                      ExitCode::kBadConfig,
                      "embedding.vocab_size: 3 is less than the vocabulary of the data, 9");
  expect_agreed_error(attempt("model.network.layer[8].dense.tied_to=out"), ExitCode::kBadConfig,
                      "tied_to: layer 'out' is not an embedding");
  expect_agreed_error(attempt("model.network.layer[8].dense.units=10"), ExitCode::kBadConfig,
                      "tied_to: requires a weight of shape [10, 16], but that of layer 'te' is");
  expect_agreed_error(attempt("model.network.layer[3].attention.heads=5"), ExitCode::kBadConfig,
                      "queries, keys and values of 15 heads in all");
  expect_agreed_error(attempt("model.network.layer[1].input=input"), ExitCode::kBadConfig,
                      "reads tokens; put an embedding layer before it");
}

TRIREME_ON_ALL_DEVICES(SequenceTest);

}  // namespace
}  // namespace trireme::train
