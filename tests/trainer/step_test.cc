#include "trainer/step/step.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "devices.h"
#include "step_fixture.h"
#include "temporary_folder.h"
#include "tests/comm/ranks.h"
#include "trainer/run/train.h"
#include "trainer/step/batch_statistics.h"

namespace trireme::train {
namespace {

class StepTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<StepFixture> fixture(std::vector<std::string> assignments = {}) {
    assignments.push_back("train.device=" + GetParam());
    return std::make_unique<StepFixture>(*world_, kStepConfig, assignments);
  }
  std::unique_ptr<comm::Communicator> world_ = test::join();
};

TEST_P(StepTest, ClippingLimitsTheGlobalGradientNorm) {
  const double free = fixture()->step_length();
  ASSERT_GT(free, 0.1);
  const auto clip = [&](double norm) { return "train.clip_norm=" + std::to_string(norm); };
  EXPECT_NEAR(fixture({clip(free / 3)})->step_length(), free / 3, 1e-5 * free);
  EXPECT_NEAR(fixture({clip(free * 2)})->step_length(), free, 1e-5 * free);
}

TEST_P(StepTest, WeightDecaySkipsBiasesByDefault) {
  const auto lengths = [&](const std::vector<std::string>& assignments) {
    const auto f = fixture(assignments);
    std::vector<int64_t> decayed;
    for (const ops::UpdateRange& range :
         update_ranges(f->step().parameters(),
                       parse_config(kStepConfig, "test", assignments).run.optimizer())) {
      if (range.weight_decay > 0) decayed.push_back(range.end - range.begin);
    }
    return std::accumulate(decayed.begin(), decayed.end(), int64_t{0});
  };
  int64_t weights = 0;
  int64_t all = 0;
  const auto f = fixture();
  for (const model::Parameter& parameter : f->step().parameters().all) {
    all += parameter.end - parameter.begin;
    if (parameter.decays) weights += parameter.end - parameter.begin;
  }
  ASSERT_LT(weights, all);
  EXPECT_EQ(lengths({}), 0);
  EXPECT_EQ(lengths({"optimizer.weight_decay=0.1"}), weights);
  EXPECT_EQ(lengths({"optimizer.weight_decay=0.1", "optimizer.decay_bias_and_norm=true"}), all);
}

TEST_P(StepTest, MetricsAreSumsOverAllRanks) {
  const auto f = fixture();
  const StepResult first = f->run(0, 0.1f, /*stop_requested=*/world_->rank() == 0);
  EXPECT_EQ(first.metrics[ops::kMetricSamples], 22);
  EXPECT_EQ(first.metrics[ops::kMetricStopRequests], 1);
  const StepResult second = f->run(1, 0.1f);
  EXPECT_EQ(second.metrics[ops::kMetricSamples], 22);
  EXPECT_EQ(second.metrics[ops::kMetricStopRequests], 0);
}

class LossScaleTest : public StepTest {
 protected:
  void SetUp() override {
    if (GetParam() == "cpu") GTEST_SKIP() << "FP16 needs a GPU";
  }
  std::unique_ptr<StepFixture> scaled_by(const ops::LossScale& scale) {
    auto f = fixture({"train.precision=FP16", "train.epochs=9"});
    f->step().optimizer().set_loss_scale(scale, f->step().stream());
    return f;
  }
};

TEST_P(LossScaleTest, DoesNotChangeUpdatesOrLosses) {
  std::vector<std::vector<double>> values;
  std::vector<float> losses;
  for (float scale : {1024.0f, 65536.0f}) {
    const auto f = scaled_by({.scale = scale});
    losses.push_back(f->run(0, 0.1f).metrics[ops::kMetricLoss]);
    values.push_back(f->values());
  }
  EXPECT_EQ(losses[0], losses[1]);
  for (size_t i = 0; i < values[0].size(); ++i) EXPECT_NEAR(values[1][i], values[0][i], 1e-4);
}

TEST_P(LossScaleTest, DoublesAfterManyGoodSteps) {
  const auto f = scaled_by({.scale = 1024, .good_steps = 1998});
  EXPECT_EQ(f->run(0, 0.1f).loss_scale->scale, 1024);
  const ops::LossScale grown = *f->run(1, 0.1f).loss_scale;
  EXPECT_EQ(grown.scale, 2048);
  EXPECT_EQ(grown.good_steps, 0);
  EXPECT_EQ(grown.skipped, 0);
}

TEST_P(LossScaleTest, OverflowOnOneRankSkipsTheUpdateOnAll) {
  const float far = 1 << 24;
  const auto f = scaled_by({.scale = world_->rank() == 0 ? far : 1024});
  const std::vector<double> before = f->values();
  const StepResult result = f->run(0, 1);
  EXPECT_EQ(f->values(), before);
  EXPECT_EQ(result.loss_scale->scale, world_->rank() == 0 ? far / 2 : 512);
  EXPECT_EQ(result.loss_scale->skipped, 1);
  EXPECT_TRUE(std::isfinite(result.metrics[ops::kMetricLoss]));
  // The low-precision copy was not updated either; the next step continues from the same values.
  f->step().optimizer().set_loss_scale({.scale = 1024}, f->step().stream());
  f->run(1, 1);
  EXPECT_NE(f->values(), before);
}

// An evaluation reads them from another stream.
TEST_P(LossScaleTest, RunningStatisticsAreRestoredWhenFinishReturns) {
  const char* const config = R"(
model { network {
  layer { conv2d { channels: 8 kernel: 3 padding: 1 } }
  layer { batch_norm {} }
  layer { flatten {} }
  layer { dense { units: 10 } }
  layer { softmax_cross_entropy {} }
} }
data { synthetic { shape: [3, 8, 8] count: 22 eval_count: 10 } }
batch { global: 22 }
train { epochs: 99 }
schedule { learning_rate: 1 }
)";
  StepFixture f(*world_, config, {"train.device=" + GetParam(), "train.precision=FP16"});
  Device& device = f.step().backend().device();
  const auto other_stream = device.create_stream(StreamKind::kCompute);
  const auto running_stats = [&] {
    std::vector<float> values(static_cast<size_t>(f.step().parameters().running_stat_elements));
    const Buffer host = device.allocate_host(values.size() * sizeof(float));
    device.copy(host.data(), f.step().arrays().running_stats, host.bytes(), *other_stream);
    other_stream->synchronize();
    std::copy_n(host.as<float>(), values.size(), values.begin());
    return values;
  };
  f.run(0, 0.1f);
  const std::vector<float> before = running_stats();
  ASSERT_GT(before.size(), 0u);
  for (int64_t step = 1; step < 9; ++step) {
    f.step().optimizer().set_loss_scale({.scale = 1 << 24}, f.step().stream());
    ASSERT_EQ(f.run(step, 0.1f).loss_scale->skipped, 1);
    EXPECT_EQ(running_stats(), before) << "after step " << step;
  }
}

// Libraries assume that tensors are aligned, but a pass may begin at any sample.
TEST_P(StepTest, InputsOfEachPassAreAligned) {
  const TemporaryFolder folder;
  std::string rows;
  for (int row = 0; row < 24; ++row) {
    rows += fmt::format("{},{},{},{}\n", row % 5, row % 7 - 3, 0.5 * row, row % 3);
  }
  spill(folder.path() / "train.csv", rows);
  const std::string config = R"(
model { network { layer { dense { units: 3 } } layer { softmax_cross_entropy {} } } }
data { csv { train_file: 'train.csv' eval_file: 'train.csv' } root: ')" +
                             folder.path().string() + R"(' }
batch { global: 24 }
train { epochs: 9 }
schedule { learning_rate: 0.01 }
)";
  const auto values = [&](const char* micro) {
    StepFixture f(*world_, config,
                  {"train.device=" + GetParam(), std::string("batch.micro=") + micro});
    for (int64_t step = 0; step < 3; ++step) f.run(step, 0.01f);
    return f.values();
  };
  const std::vector<double> full = values("24"), micro_batches = values("3");
  for (size_t i = 0; i < full.size(); ++i) EXPECT_NEAR(micro_batches[i], full[i], 1e-5);
}

// Each epoch has a batch of four samples and one of two, so that some of four ranks have none.
class RunningStatistics : public StepTest {
 protected:
  // Returns the running mean and variance of two channels after two epochs. Averages over the ranks
  // after every step or at the end.
  std::vector<float> after_two_epochs(comm::Communicator& ranks, bool sync, bool every_step) {
    const TemporaryFolder folder;
    spill(folder.path() / "train.csv", "1,8,0\n2,-3,1\n4,5,0\n8,-1,1\n16,2,0\n32,7,1\n");
    const std::string config = fmt::format(R"(
model {{ network {{ layer {{ batch_norm {{ sync: {} }} }} layer {{ dense {{ units: 2 }} }}
                  layer {{ softmax_cross_entropy {{}} }} }} }}
data {{ csv {{ train_file: 'train.csv' eval_file: 'train.csv' }} root: '{}' shuffle: false }}
batch {{ global: 4 }}
train {{ epochs: 2 }}
schedule {{ learning_rate: 0.01 }}
)",
                                           sync, folder.path().string());
    StepFixture f(ranks, config, {"train.device=" + GetParam()});
    for (int64_t step = 0; step < 4; ++step) {
      f.run(step, 0.01f);
      if (every_step || step == 3) f.step().average_running_stats();
    }
    Step& step = f.step();
    std::vector<float> values;
    for (const StateArrays::Tensor& tensor : step.state().running_stats().tensors) {
      std::vector<float> own(static_cast<size_t>(tensor.spec.shape.elements()));
      step.state().get(tensor, own);
      values.insert(values.end(), own.begin(), own.end());
    }
    return values;
  }
};

// PyTorch's BatchNorm1d on one process.
TEST_P(RunningStatistics, OfSynchronizedBatchNormDoNotDependOnTheNumberOfRanks) {
  const std::vector<float> pytorch{4.95487499f, 1.18102503f, 25.3852234f, 7.19472504f};
  for (const bool every_step : {false, true}) {
    const std::vector<float> got = after_two_epochs(*world_, /*sync=*/true, every_step);
    ASSERT_EQ(got.size(), pytorch.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], pytorch[i], 1e-5 * std::abs(pytorch[i])) << i;
    }
  }
}

TEST_P(RunningStatistics, AreWeightedBySamples) {
  const std::vector<float> means{4.95487499f, 1.18102503f};
  const std::vector<float> got = after_two_epochs(*world_, /*sync=*/false, /*every_step=*/true);
  for (size_t i = 0; i < means.size(); ++i) {
    EXPECT_NEAR(got[i], means[i], 1e-5 * std::abs(means[i])) << i;
  }
}

// buckets.sum_on_one_rank is for tests of a transport on a single GPU.
TEST_P(StepTest, SumsOnOneRankDoNotChangeResults) {
  std::vector<std::vector<double>> values;
  for (const char* asked : {"false", "true"}) {
    const auto f = fixture({std::string("buckets.sum_on_one_rank=") + asked, "train.epochs=9"});
    StepResult result;
    for (int64_t step = 0; step < 4; ++step) result = f->run(step, 0.1f);
    values.push_back(f->values());
    EXPECT_EQ(result.timings.communication > 0, world_->size() > 1 || *asked == 't');
  }
  EXPECT_EQ(values[0], values[1]);
}

// As documented: as on several ranks, gradients are rounded to the type of the buckets.
TEST_P(StepTest, SumsOnOneRankRoundGradientsToTheTypeOfTheBuckets) {
  const auto values = [&](const std::string& precision, const char* asked) {
    const auto f = fixture({"buckets.precision=" + precision, "buckets.first_bytes=64",
                            std::string("buckets.sum_on_one_rank=") + asked});
    f->run(0, 0.1f);
    return f->values();
  };
  const bool alone = world_->size() == 1;
  EXPECT_EQ(values("BF16", "false") == values("BF16", "true"), !alone);
  EXPECT_NE(values("BF16", "true"), values("FP32", "true"));
}

TEST_P(StepTest, BucketsCoverTheGradients) {
  const auto f = fixture({"buckets.first_bytes=64", "buckets.bytes=512"});
  const auto buckets = f->step().buckets();
  ASSERT_GT(buckets.size(), 1u);
  int64_t end = 0;
  for (const comm::Bucket& bucket : buckets) {
    EXPECT_EQ(bucket.begin, end);
    end = bucket.end;
  }
  EXPECT_EQ(end, f->step().parameters().elements);
}

TEST_P(StepTest, PlansBatches) {
  const auto plan = [](const char* micro, int ranks) {
    std::vector<std::string> assignments{"batch.global=100"};
    if (*micro) assignments.push_back(std::string("batch.micro=") + micro);
    return plan_batch(parse_config(kStepConfig, "test", assignments), ranks);
  };
  EXPECT_EQ(plan("", 3).micro, 34);
  EXPECT_EQ(plan("", 3).passes, 1);
  EXPECT_EQ(plan("20", 3).passes, 2);
  EXPECT_EQ(plan("20", 3).micro, 17);  // evenly, rather than 20 and 14
  EXPECT_EQ(plan("20", 3).capacity, 34);
  EXPECT_EQ(plan("1000", 4).micro, 25);
  EXPECT_THROW(plan("", 101), ConfigError);
}

// As PyTorch's "Expected more than 1 value per channel when training".
TEST(BatchStatistics, OfASingleValueAreRefused) {
  const auto refusal = [](const std::vector<std::string>& assignments, int ranks, int64_t samples,
                          const char* before = "dense { units: 4 }") {
    const std::string text = fmt::format(R"(
model {{ network {{ layer {{ {} }} layer {{ name: "norm" batch_norm {{}} }} layer {{ flatten {{}} }}
                  layer {{ dense {{ units: 3 }} }} layer {{ softmax_cross_entropy {{}} }} }} }}
data {{ synthetic {{}} }} batch {{ global: 8 }} train {{ epochs: 1 }} schedule {{learning_rate: 1}}
)",
                                         before);
    const Config config = parse_config(text, "test", assignments);
    const Shape input = *before == 'd' ? Shape{6} : Shape{1, 4, 4};
    const model::Graph graph = model::build_graph(
        config.run.model(), {.input = {DType::kF32, input, Layout::row_major()},
                             .target = {DType::kI32, Shape{}, Layout::row_major()},
                             .classes = 3});
    try {
      require_statistics(config, graph, plan_batch(config, ranks), ranks, samples);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto expect_refused = [](const std::string& message, const std::string& where,
                                 const std::string& suggestion) {
    EXPECT_NE(message.find("batch norm (layer 'norm') would compute statistics of one sample in " +
                           where + ": "),
              std::string::npos)
        << message;
    EXPECT_TRUE(message.ends_with("use another size, for example " + suggestion)) << message;
  };
  const std::string sync = "model.network.layer[1].batch_norm.sync=true";
  EXPECT_EQ(refusal({}, 4, 0), "");
  expect_refused(refusal({}, 5, 0), "a step", "batch.global: 10");
  EXPECT_EQ(refusal({sync}, 5, 0), "");
  expect_refused(refusal({"batch.micro=1"}, 1, 0), "a step", "batch.micro: 2");
  expect_refused(refusal({"batch.global=5", "batch.micro=2"}, 1, 0), "a step", "batch.micro: 4");
  EXPECT_EQ(refusal({"batch.global=6", "batch.micro=2"}, 1, 0), "");
  const std::string last = "the last step of an epoch, of 1 sample";
  expect_refused(refusal({}, 1, 17), last, "batch.global: 9");
  expect_refused(refusal({sync}, 3, 17), last, "batch.global: 9");
  EXPECT_EQ(refusal({"train.max_steps=2"}, 1, 17), "");
  EXPECT_EQ(refusal({sync}, 3, 18), "");
  EXPECT_EQ(refusal({"model.freeze=norm.*"}, 5, 17), "");
  EXPECT_EQ(refusal({}, 5, 17, "conv2d { channels: 4 kernel: 3 }"), "");
}

TEST(AssignDevices, DistributesDevicesEvenly) {
  using Ids = std::vector<std::string>;
  const Ids all{"a", "b", "c", "d"};
  EXPECT_EQ(assign_devices({all, all, all, all}), (std::vector{0, 1, 2, 3}));
  // A scheduler may show each rank only its own device.
  EXPECT_EQ(assign_devices({{"a"}, {"b"}}), (std::vector{0, 0}));
  // More ranks than devices.
  EXPECT_EQ(assign_devices({{"a", "b"}, {"a", "b"}, {"a", "b"}}), (std::vector{0, 1, 0}));
  EXPECT_EQ(assign_devices({{}, {"a"}}), (std::vector{-1, 0}));
}

TRIREME_ON_ALL_DEVICES(StepTest);
TRIREME_ON_ALL_DEVICES(LossScaleTest);
TRIREME_ON_ALL_DEVICES(RunningStatistics);

}  // namespace
}  // namespace trireme::train
