#include "trainer/step/rank_consistency.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "comm/control.h"
#include "step_fixture.h"
#include "tests/comm/ranks.h"

namespace trireme::train {
namespace {

class RankConsistencyTest : public ::testing::Test {
 protected:
  static Config config(const std::vector<std::string>& assignments) {
    return parse_config(kStepConfig, "test", assignments);
  }
  bool is_last() const { return world_->rank() == world_->size() - 1; }

  // Returns the error if the last rank has `other` and the rest `common`, or "" if there is none.
  std::string refusal(const RankProperties& common, const RankProperties& other) {
    try {
      require_same_properties(*world_, is_last() ? other : common);
    } catch (const comm::AgreedError& error) {
      EXPECT_EQ(error.code(), ExitCode::kBadConfig);
      EXPECT_EQ(error.rank(), world_->size() - 1);
      return error.what();
    }
    return {};
  }
  // refusal() for configurations.
  std::string refused(const std::vector<std::string>& assignments) {
    return refusal(program_properties(config({}).run), program_properties(config(assignments).run));
  }
  RankProperties inputs(const std::vector<std::string>& assignments) {
    const Config configured = config(assignments);
    const auto training = open_data(configured, data::Part::kTraining);
    const auto evaluation = open_data(configured, data::Part::kEvaluation);
    return input_properties(*cpu_, *training, *evaluation,
                            build_network(configured, training->spec()));
  }
  // Returns "rank 2 differs from rank 0: " and the difference, or "" if there is only one rank.
  std::string with_rank(const std::string& difference) const {
    if (world_->size() == 1) return {};
    return "rank " + std::to_string(world_->size() - 1) + " differs from rank 0: " + difference;
  }

  std::unique_ptr<comm::Communicator> world_ = test::join();
  std::unique_ptr<Device> cpu_ = create_cpu_device(1);
};

TEST_F(RankConsistencyTest, ReportsADifferentFieldWithBothValues) {
  EXPECT_EQ(refused({"batch.global=64"}), with_rank("batch.global is 64, but 22 on rank 0"));
  EXPECT_EQ(refused({"train.precision=BF16"}),
            with_rank("train.precision is BF16, but FP32 on rank 0"));
  EXPECT_EQ(refused({"batch.micro=8"}), with_rank("batch.micro is 8, but not set on rank 0"));
  EXPECT_EQ(
      refused({"optimizer=adam"}).find("optimizer.adam.beta1 is 0.9, but not set on rank 0") !=
          std::string::npos,
      world_->size() > 1);
  EXPECT_EQ(refused({"model.network.layer[3].dense.units=11"}),
            with_rank("model.network.layer[3].dense.units is 11, but 10 on rank 0"));
}

TEST_F(RankConsistencyTest, IgnoresFieldsThatMayDifferBetweenHosts) {
  EXPECT_EQ(refused({}), "");
  EXPECT_EQ(refused({"run_dir=elsewhere", "data.root=elsewhere", "train.threads=3",
                     "data.threads=1", "data.prefetch=2"}),
            "");
}

TEST_F(RankConsistencyTest, RejectsDifferentSamplesAndShapes) {
  EXPECT_EQ(refusal(inputs({}), inputs({})), "");
  EXPECT_EQ(
      refusal(inputs({}), inputs({"data.synthetic.eval_count=11"}))
              .find("number of evaluation samples is 11, but 10 on rank 0") != std::string::npos,
      world_->size() > 1);
  // Same shapes, different contents.
  const std::string other = refusal(inputs({}), inputs({"data.synthetic.seed=77"}));
  EXPECT_EQ(other.find("checksum of training samples is ") != std::string::npos, world_->size() > 1)
      << other;
  const std::string shape = refusal(inputs({}), inputs({"data.synthetic.shape=3,8,9"}));
  for (const char* part : {"dense_3.weight is [10, 576], but [10, 512] on rank 0",
                           "number of parameters is 5994, but 5354 on rank 0"}) {
    EXPECT_EQ(shape.find(part) != std::string::npos, world_->size() > 1) << shape;
  }
}

TEST_F(RankConsistencyTest, RejectsDifferentLayouts) {
  StepFixture fixture(*world_, kStepConfig, {"train.device=cpu"});
  const RankProperties common = layout_properties(fixture.step().parameters());
  model::Parameters moved = fixture.step().parameters();
  moved.all[0].begin += 16;
  EXPECT_EQ(refusal(common, common), "");
  EXPECT_EQ(refusal(common, layout_properties(moved)).empty(), world_->size() == 1);
}

TEST_F(RankConsistencyTest, FindsTheBuildId) {
  const std::string id = build_id();
  EXPECT_EQ(id.size(), 40u) << id;
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos) << id;
}

}  // namespace
}  // namespace trireme::train
