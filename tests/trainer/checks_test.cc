#include "trainer/run/checks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "comm/control.h"
#include "devices.h"
#include "step_fixture.h"
#include "tests/comm/ranks.h"

namespace trireme::train {
namespace {

// Losses around 2 with the given standard deviation.
double noisy_loss(int step, double stddev) { return 2 + (step % 2 ? stddev : -stddev); }

TEST(LossSpikes, AreComparedWithTheLastHundredSteps) {
  LossSpikes spikes(10);
  for (int step = 0; step < 100; ++step) {
    // The first losses of a run fall steeply and have nothing to be compared with.
    EXPECT_FALSE(spikes.add(step == 50 ? 1000 : noisy_loss(step, 0.1))) << step;
  }
  for (int step = 100; step < 200; ++step) EXPECT_FALSE(spikes.add(noisy_loss(step, 0.1))) << step;
  EXPECT_FALSE(spikes.add(2.9));
  LossSpikes fresh(10);
  for (int step = 0; step < 100; ++step) fresh.add(noisy_loss(step, 0.1));
  const auto spike = fresh.add(3.5);
  ASSERT_TRUE(spike);
  EXPECT_NEAR(spike->mean, 2, 1e-12);
  EXPECT_NEAR(spike->stddevs, 15, 1e-9);
  EXPECT_FALSE(fresh.add(-100)) << "only increases count";
}

TEST(LossSpikes, TheStandardDeviationHasALowerLimit) {
  LossSpikes spikes(10);
  for (int step = 0; step < 100; ++step) spikes.add(0.5);
  EXPECT_FALSE(spikes.add(0.5 + 1e-7));
  EXPECT_FALSE(spikes.add(0.54));
  EXPECT_TRUE(spikes.add(5));
}

// Every loss above 0 was infinitely many standard deviations above the mean.
TEST(LossSpikes, ARunThatHasConvergedHasNone) {
  LossSpikes spikes(10);
  for (int step = 0; step < 100; ++step) spikes.add(2.3);
  for (int step = 0; step < 200; ++step) spikes.add(0);
  for (int step = 0; step < 500; ++step) {
    EXPECT_FALSE(spikes.add(step % 3 == 0 ? 1e-6 * step / 500 : 0)) << step;
  }
  EXPECT_TRUE(spikes.add(0.01));
}

TEST(LossSpikes, IgnoreNonFiniteLossesAndCanBeDisabled) {
  LossSpikes spikes(10);
  LossSpikes off(0);
  for (int step = 0; step < 100; ++step) {
    spikes.add(noisy_loss(step, 0.1));
    spikes.add(std::nan(""));
    EXPECT_FALSE(off.add(1));
  }
  EXPECT_FALSE(spikes.add(std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(spikes.add(100));
  EXPECT_FALSE(off.add(100));
}

const char* const kNormed = R"(
model { network {
  layer { name: "first" conv2d { channels: 8 kernel: 3 padding: 1 bias: false } }
  layer { name: "norm" batch_norm {} }
  layer { relu {} }
  layer { flatten {} }
  layer { name: "last" dense { units: 10 } }
  layer { softmax_cross_entropy {} }
} }
data { synthetic { shape: [3, 8, 8] count: 24 eval_count: 10 } }
batch { global: 24 }
train { epochs: 9 }
optimizer { adam {} }
schedule { learning_rate: 0.01 }
)";

class ChecksTest : public ::testing::TestWithParam<std::string> {
 protected:
  void make(std::vector<std::string> assignments = {}) {
    assignments.push_back("train.device=" + GetParam());
    fixture_ = std::make_unique<StepFixture>(*world_, kNormed, assignments);
    checks_ = std::make_unique<Checks>(fixture_->config().run.checks(), *world_, fixture_->step());
  }

  // Sets the first element of a parameter on one rank. Returns the previous value.
  float set(const std::string& name, int rank, float value) {
    float before = 0;
    if (world_->rank() != rank) return before;
    Step& step = fixture_->step();
    for (const model::Parameter& parameter : step.parameters().all) {
      if (parameter.name != name) continue;
      float* at = static_cast<float*>(step.arrays().parameters) + parameter.begin;
      Device& device = step.backend().device();
      device.copy(&before, at, sizeof before, step.stream());
      step.stream().synchronize();
      device.copy(at, &value, sizeof value, step.stream());
      step.stream().synchronize();
    }
    step.parameters_changed();
    return before;
  }

  std::vector<float> running_stats() {
    Step& step = fixture_->step();
    std::vector<float> values(static_cast<size_t>(step.parameters().running_stat_elements));
    step.backend().device().copy(values.data(), step.arrays().running_stats,
                                 step.parameters().running_stat_bytes(), step.stream());
    step.stream().synchronize();
    return values;
  }

  int last() const { return world_->size() - 1; }
  std::string last_rank() const { return "rank " + std::to_string(last()); }

  std::unique_ptr<comm::Communicator> world_ = test::join();
  std::unique_ptr<StepFixture> fixture_;
  std::unique_ptr<Checks> checks_;
};

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST_P(ChecksTest, NanOnOneRankSkipsTheStepOnAll) {
  make({"checks.non_finite=SKIP"});
  fixture_->run(0, 0.01f);
  const std::vector<float> running_stats_before = running_stats();
  const float original = set("last.weight", last(), kNaN);
  const std::vector<double> before = fixture_->values();
  const StepResult result = fixture_->run(1, 0.01f);
  EXPECT_TRUE(result.not_finite);
  EXPECT_EQ(result.skipped_steps, 1);
  EXPECT_EQ(running_stats(), running_stats_before);
  const auto found = checks_->check_result(result);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->what,
            "step 2: " + last_rank() + ": parameter 'last.weight' is not finite (nan)");
  EXPECT_FALSE(found->ends_run);
  EXPECT_EQ(running_stats(), running_stats_before);
  set("last.weight", last(), original);
  if (world_->rank() != last()) {
    EXPECT_EQ(fixture_->values(), before);
  }

  const StepResult next = fixture_->run(2, 0.01f);
  EXPECT_FALSE(next.not_finite);
  EXPECT_EQ(next.skipped_steps, 1);
  EXPECT_FALSE(checks_->check_result(next));
  EXPECT_NE(running_stats(), running_stats_before);
  EXPECT_NE(fixture_->values(), before);
  checks_->compare_ranks(3, /*averaged=*/false);
}

// A GPU already computes the next step when the result arrives.
TEST_P(ChecksTest, SkippedStepsInARowChangeNoState) {
  make({"checks.non_finite=SKIP"});
  fixture_->run(0, 0.01f);
  const std::vector<float> running_stats_before = running_stats();
  const std::vector<double> before = fixture_->values();
  const float original = set("first.weight", last(), kNaN);
  int64_t checked = 0;
  const auto check_result = [&](const std::optional<StepResult>& result) {
    if (!result) return;
    ++checked;
    const auto found = checks_->check_result(*result);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->what, "step " + std::to_string(checked + 1) + ": " + last_rank() +
                               ": parameter 'first.weight' is not finite (nan)");
  };
  for (int64_t step = 1; step <= 4; ++step) {
    check_result(fixture_->step().run(fixture_->next(), step, 0.01f));
  }
  check_result(fixture_->step().finish());
  EXPECT_EQ(checked, 4);
  EXPECT_EQ(running_stats(), running_stats_before);
  set("first.weight", last(), original);
  EXPECT_EQ(fixture_->values(), before);
}

// On a GPU the next step has begun when the result of a skipped one arrives, and counts.
TEST_P(ChecksTest, AStepAfterASkippedOneUpdatesRunningStatistics) {
  const auto statistics = [&](bool skips) {
    make({"checks.non_finite=SKIP"});
    fixture_->run(0, 0.01f);
    if (skips) {
      const float original = set("last.weight", last(), kNaN);
      const auto early = fixture_->step().run(fixture_->next(), 1, 0.01f);
      if (early) {
        EXPECT_TRUE(checks_->check_result(*early));
      }
      set("last.weight", last(), original);
      const auto next = fixture_->step().run(fixture_->next(), 2, 0.01f);
      if (!early) {
        EXPECT_TRUE(checks_->check_result(*next));
      }
      const auto final = fixture_->step().finish();
      EXPECT_FALSE(checks_->check_result(early ? *next : *final));
    } else {
      fixture_->next();
      fixture_->run(1, 0.01f);
    }
    return running_stats();
  };
  const std::vector<float> wanted = statistics(false), got = statistics(true);
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], wanted[i], 1e-6 * std::abs(wanted[i])) << i;
  }
}

// Adam's second moment would be infinite from then on.
TEST_P(ChecksTest, AFiniteGradientWithAnInfiniteSquareIsNotFinite) {
  const char* const network = R"(
model { network { layer { flatten {} } layer { dense { units: 10 } }
                  layer { softmax_cross_entropy {} } } }
data { synthetic { shape: [3, 8, 8] count: 24 eval_count: 10 } }
batch { global: 24 }
train { epochs: 9 }
schedule { learning_rate: 0.01 }
)";
  for (const char* optimizer : {"sgd {momentum: 0.9}", "adam {}", "lamb {}"}) {
    SCOPED_TRACE(optimizer);
    const auto run = [&](const std::string& more) {
      fixture_ = std::make_unique<StepFixture>(
          *world_, network,
          std::vector<std::string>{"train.device=" + GetParam(), "data.normalize={std: 1e-22}",
                                   std::string("optimizer={") + optimizer + "}", more});
      checks_ =
          std::make_unique<Checks>(fixture_->config().run.checks(), *world_, fixture_->step());
      const std::vector<double> before = fixture_->values();
      const auto found = checks_->check_result(fixture_->run(0, 0.01f));
      EXPECT_EQ(fixture_->values() == before, found.has_value());
      return found ? found->what : "";
    };
    const std::string what = run("seed=2");
    EXPECT_EQ(what.starts_with("step 1: the norm of the gradient, "), *optimizer != 's') << what;
    EXPECT_EQ(run("train.clip_norm=1"), "");
  }
}

TEST_P(ChecksTest, ReportsTheFirstRankWhenBatchNormSpreadsANan) {
  make({"model.network.layer[1].batch_norm.sync=true"});
  set("first.weight", last(), kNaN);
  const StepResult result = fixture_->run(0, 0.01f);
  const auto found = checks_->check_result(result);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->ends_run);
  EXPECT_TRUE(found->what.starts_with("step 1: " + last_rank() +
                                      ": parameter 'first.weight' is not finite (nan)"))
      << found->what;
}

TEST_P(ChecksTest, ManySkippedStepsInARowEndTheRun) {
  make({"checks.non_finite=SKIP", "checks.max_skipped=3", "batch.micro=3"});
  set("first.weight", last(), std::numeric_limits<float>::infinity());
  for (int64_t step = 0; step < 3; ++step) {
    const auto found = checks_->check_result(fixture_->run(step, 0.01f));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->ends_run, step == 2) << found->what;
  }
}

TEST_P(ChecksTest, InFp16AnOverflowThatASmallerLossScaleFixesIsNoError) {
  if (GetParam() == "cpu") GTEST_SKIP() << "FP16 needs a GPU";
  make({"train.precision=FP16"});
  fixture_->step().optimizer().set_loss_scale({.scale = 1 << 24}, fixture_->step().stream());
  const StepResult overflow = fixture_->run(0, 0.01f);
  EXPECT_EQ(overflow.skipped_steps, 1);
  EXPECT_FALSE(checks_->check_result(overflow));
  set("last.weight", last(), kNaN);
  const auto found = checks_->check_result(fixture_->run(1, 0.01f));
  ASSERT_TRUE(found);
  EXPECT_NE(found->what.find(last_rank() + ": parameter 'last.weight'"), std::string::npos)
      << found->what;
}

TEST_P(ChecksTest, ReportsTheRankWithDifferentParameters) {
  make();
  fixture_->run(0, 0.01f);
  checks_->compare_ranks(1, /*averaged=*/false);
  if (world_->size() == 1) return;
  set("last.bias", last(), 12);
  try {
    checks_->compare_ranks(1, /*averaged=*/false);
    FAIL();
  } catch (const comm::AgreedError& error) {
    const std::string who = world_->size() == 2
                                ? "ranks 0, 1 differ, without a majority that agrees, in"
                                : last_rank() + " differs from the others in";
    EXPECT_TRUE(std::string(error.what()).starts_with("after step 1 " + who + " 'last.bias';"))
        << error.what();
    EXPECT_EQ(error.rank(), world_->size() == 2 ? 0 : last());
  }
}

TEST_P(ChecksTest, RunningStatisticsAreComparedOnceAveraged) {
  make();
  fixture_->run(0, 0.01f);
  checks_->compare_ranks(1, /*averaged=*/false);
  if (world_->size() > 1) {
    EXPECT_THROW(checks_->compare_ranks(1, /*averaged=*/true), comm::AgreedError);
  }
  fixture_->step().average_running_stats();
  checks_->compare_ranks(1, /*averaged=*/true);
}

TRIREME_ON_ALL_DEVICES(ChecksTest);

}  // namespace
}  // namespace trireme::train
