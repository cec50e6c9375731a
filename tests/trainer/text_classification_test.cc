// Classification of texts in batches of similar length, in complete runs: ranks, resuming,
// augmentation, and programs for shorter samples.
#include <algorithm>
#include <cmath>
#include <fstream>

#include "runs.h"
#include "trainer/config/device.h"
#include "trainer/config/inputs.h"
#include "trainer/config/loading.h"
#include "trainer/infer/evaluate_checkpoint.h"
#include "trainer/report/run_records.h"
#include "trainer/step/step.h"

namespace trireme::train {
namespace {

const char* const kBert = R"(
model { zoo { name: "bert-mini" blocks: 2 width: 16 heads: 2 dropout: 0.1
              padding_token: 0 segment_end: 3 pooling: MEAN label_smoothing: 0.1 } }
optimizer { adamw { beta2: 0.99 } weight_decay: 0.1 }
schedule { learning_rate: 0.01 cosine {} warmup { steps: 5 } }
)";

const char* const kLstm = R"(
model { network {
  layer { embedding { units: 12 vocab_size: 24 } }
  layer { lstm { hidden: 10 } }
  layer { token_pool { mode: MEAN padding_token: 0 } }
  layer { dense {} }
  layer { softmax_cross_entropy { label_smoothing: 0.1 } }
} }
optimizer { adam {} }
schedule { learning_rate: 0.01 }
)";

class TextClassificationTest : public RunTest {
 protected:
  TextClassificationTest() {
    if (world_->rank() == 0) {
      std::ofstream vocab(root_ / "vocab.txt");
      vocab << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n";
      for (char c = 'a'; c < 'u'; ++c) vocab << c << "\n";
      std::ofstream(root_ / "synonyms.txt") << "b, c, d\ne, f g\n";
      std::ofstream texts(root_ / "texts.csv");
      texts << "text,label\n";
      for (int row = 0; row < 190; ++row) write_text(texts, row);
    }
    wait_for_all();
  }

  // 1 to 20 words; the label tells whether "a" is among them.
  static void write_text(std::ostream& out, int row) {
    const int words = row % 4 > 0 ? 1 + row * 7 % 6 : 7 + row * 5 % 14;
    const int place = row % 2 == 0 ? row * 3 % words : -1;
    for (int w = 0; w < words; ++w) {
      out << (w == place ? 'a' : static_cast<char>('b' + (row + w * w) % 19)) << ' ';
    }
    out << (place >= 0 ? ",yes\n" : ",no\n");
  }

  std::vector<std::string> texts(
      const std::vector<std::string>& more = {},
      const std::string& buckets = "length_buckets {block: 10}",
      const std::string& augmentation = "token_dropout {} synonyms {file: 'synonyms.txt'}") const {
    std::vector<std::string> all{"data={root: '" + root_.string() +
                                     "' labeled_text {train: 'texts.csv' length: 24 tokenizer "
                                     "{wordpiece {}} " +
                                     augmentation + "} holdout: 0.2 " + buckets + "}",
                                 "batch.global=10", "train.clip_norm=1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  // Returns the parameters after a step with a batch that has `length` tokens per sample, from the
  // first rows of the data. With `cuts`, the program for this length computes it.
  std::vector<double> after_step(const std::string& network, int64_t length, bool cuts) const {
    const Config parsed =
        config(network, "unused", texts({"train.max_steps=1"}, "", /*augmentation=*/""));
    const auto device = create_device(parsed, *local_);
    const auto backend = create_backend(parsed, *device);
    const auto dataset = open_data(parsed, data::Part::kTraining);
    const model::Graph graph = build_network(parsed, dataset->spec());
    data::OrderOptions order;
    order.buckets = std::make_shared<const data::LengthBuckets>(
        dataset->lengths(), std::vector<int64_t>{8, length, 24}, /*block=*/10);
    const auto shorter = build_shorter_networks(parsed, graph, order, *dataset);
    Step step(parsed, graph, *backend, *local_, /*loader_batches=*/1,
              cuts ? std::span(shorter) : std::span<model::Graph>());
    step.initialize();
    const int64_t rows = step.plan().capacity, row_length = cuts ? length : 24;
    Buffer inputs = device->allocate_host(static_cast<size_t>(rows * row_length) * sizeof(int32_t));
    Buffer targets = device->allocate_host(static_cast<size_t>(rows) * sizeof(int32_t));
    std::vector<int32_t> sample(24);
    const std::vector<int32_t> tokens = dataset->lengths();
    int64_t row = 0;
    for (int64_t i = 0; row < rows; ++i) {
      if (tokens[static_cast<size_t>(i)] > length) continue;
      dataset->read({.index = i}, reinterpret_cast<std::byte*>(sample.data()),
                    targets.data() + row * 4);
      std::copy_n(sample.begin(), row_length, inputs.as<int32_t>() + row++ * row_length);
    }
    data::Batch batch{.inputs = inputs.data(), .targets = targets.data(), .rows = rows};
    batch.global_rows = rows;
    batch.length = cuts ? length : 0;
    step.run(batch, 0, 0.1F);
    step.finish();
    std::vector<double> all;
    for (const StateArrays::Tensor& parameter : step.state().parameters().tensors) {
      std::vector<float> values(static_cast<size_t>(parameter.spec.shape.elements()));
      step.state().get(parameter, values);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
};

TEST_P(TextClassificationTest, ShorterProgramsComputeWhatThatOfWholeSamplesDoes) {
  for (std::string network : {kBert, kLstm}) {
    if (const size_t dropout = network.find("dropout: 0.1"); dropout != std::string::npos) {
      network.erase(dropout, 12);
    }
    network.replace(network.find("optimizer"), std::string::npos,
                    "optimizer { sgd {} } schedule { learning_rate: 0.1 }");
    const std::vector<double> whole = after_step(network, 16, false);
    const std::vector<double> cut = after_step(network, 16, true);
    ASSERT_EQ(whole.size(), cut.size());
    double largest = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      largest = std::max(largest, std::abs(whole[i] - cut[i]));
    }
    EXPECT_LT(largest, 2e-6);
  }
}

TEST_P(TextClassificationTest, LossesDoNotDependOnTheNumberOfRanks) {
  for (const auto& [network, name] : {std::pair{kBert, std::string("bert")}, {kLstm, "lstm"}}) {
    run_alone(network, name + "-alone", texts({"train.max_steps=16"}));
    run(network, name, texts({"train.max_steps=16", "batch.micro=2"}));
    expect_same_losses(name + "-alone", name, 16);
    run(network, name + "-zero", texts({"train.max_steps=16", "parallel.shard=OPTIMIZER"}));
    expect_same_losses(name + "-alone", name + "-zero", 16);
  }
}

TEST_P(TextClassificationTest, RunsAreReproducibleAndResumeInMidEpoch) {
  for (const auto& [network, name] : {std::pair{kBert, std::string("bert")}, {kLstm, "lstm"}}) {
    const auto steps = texts({"train.max_steps=25", "checkpoint.every_steps=11"});
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

// Batches of other texts, but each text once in each epoch: 152 of them in 16 steps.
TEST_P(TextClassificationTest, EvaluationsInBucketsAreThoseOfWholeSamples) {
  run(kBert, "run", texts({"train.max_steps=16"}));
  const auto event = events("run", "eval").back();
  const Config config = parse_config(slurp(folder("run") / "config.txtpb"), "config", {});
  const Evaluation result = evaluate_checkpoint(config, *world_, newest("run")).evaluation;
  const auto loss = event["eval_loss"].get<double>();
  EXPECT_NEAR(*result.metrics.loss, loss, 1e-5 * loss);
  EXPECT_NEAR(*result.metrics.accuracy, event["eval_accuracy"].get<double>(), 1e-9);
  EXPECT_EQ(result.samples, 38);
}

// An epoch has 16 steps.
TEST_P(TextClassificationTest, RecordsHaveTheShareOfPadding) {
  run(kBert, "buckets", texts({"train.max_steps=16"}));
  run(kBert, "whole", texts({"train.max_steps=16"}, ""));
  const Config config = parse_config(slurp(folder("buckets") / "config.txtpb"), "config", {});
  const auto dataset = open_data(config, data::Part::kTraining);
  const data::OrderOptions order = training_order(config, *dataset);
  const data::LengthBuckets::Waste waste =
      order.buckets->waste({.seed = config.run.seed(), .epoch = 0, .shuffle = order.shuffle}, 10);
  const auto share = [&](const char* name) {
    return parse_summary(slurp(folder(name) / "summary.json"))->padding_share.value();
  };
  EXPECT_NEAR(share("buckets"), waste.share(), 1e-9);
  EXPECT_NEAR(share("whole"), waste.share_of_whole(), 1e-9);
  EXPECT_LT(share("buckets"), share("whole"));
  EXPECT_EQ(events("buckets", "step").size(), 16u);
  for (const auto& step : events("buckets", "step")) {
    EXPECT_GE(step["padding_share"].get<double>(), 0);
    EXPECT_LT(step["padding_share"].get<double>(), 1);
  }
}

// Shorter batches have fewer operations, and all ranks share those of a batch.
TEST_P(TextClassificationTest, RecordsHaveTheUtilizationOfTheWorkThatIsDone) {
  const auto floor_ms = [&](const std::string& name, const std::string& buckets) {
    train(config(kBert, name, texts({"train.max_steps=15", "metrics.utilization=true"}, buckets)),
          *world_, {.quiet = true, .measure_peak_flops = [](auto&&...) { return 1e9; }});
    std::vector<double> all;
    for (const auto& step : events(name, "step")) {
      all.push_back(step["model_flops_utilization"].get<double>() * step["step_ms"].get<double>());
    }
    return all;
  };
  const std::vector<double> whole = floor_ms("whole", "");
  const std::vector<double> buckets = floor_ms("buckets", "length_buckets {block: 10}");
  ASSERT_EQ(whole.size(), 15u);
  ASSERT_EQ(buckets.size(), 15u);
  for (const double ms : whole) EXPECT_NEAR(ms, whole[0], 1e-3 * whole[0]);
  EXPECT_GT(whole[0], 0);
  EXPECT_LT(std::ranges::min(buckets), 0.7 * whole[0]);
  EXPECT_LE(std::ranges::max(buckets), 1.001 * whole[0]);
}

TEST_P(TextClassificationTest, NetworksThatReadPaddingAreRefused) {
  const auto expect_error = [&](const std::string& network, const std::string& problem,
                                const std::vector<std::string>& more = {}) {
    expect_agreed_error([&] { run(network, "bad", texts(more)); }, ExitCode::kBadConfig, problem);
  };
  const auto with_layer = [](const std::string& layer) {
    return "model { network { layer { embedding { units: 12 vocab_size: 24 } } layer { name: 'x' " +
           layer +
           " } layer { dense {} } layer { softmax_cross_entropy {} } } }"
           "optimizer { sgd {} } schedule { learning_rate: 0.1 }";
  };
  expect_error(with_layer("lstm { hidden: 3 bidirectional: true } } layer { token_pool {}"),
               "data.length_buckets: layer 'x' (lstm) reads padding, the amount of which would "
               "depend on the batch; it cannot skip it, so remove data.length_buckets");
  expect_error(
      with_layer("token_pool { mode: MEAN }"),
      "data.length_buckets: layer 'x' (token_pool) reads padding, the amount of which would "
      "depend on the batch; set padding_token: 0");
  expect_error(with_layer("flatten {}"), "data.length_buckets: layer 'x' (flatten) reads padding");
  expect_error(kBert, "has attention.padding_token: 5, but texts are padded with 0",
               {"model.zoo.padding_token=5"});
  // Without buckets, all samples have the same padding, and a run is only warned.
  const Config warned = config(kBert, "warned", texts({"model.zoo.padding_token=5"}, ""));
  const auto texts_of_run = open_data(warned, data::Part::kTraining);
  EXPECT_NE(padding_problem(warned, build_network(warned, texts_of_run->spec()), *texts_of_run)
                .find("has attention.padding_token: 5, but texts are padded with 0"),
            std::string::npos);
  EXPECT_THROW(config(kBert, "bad", texts({"parallel.shard=GRADIENTS"})), ConfigError);
  EXPECT_THROW(config(kBert, "bad", texts({"parallel.stages=2"})), ConfigError);
}

TRIREME_ON_ALL_DEVICES(TextClassificationTest);

}  // namespace
}  // namespace trireme::train
