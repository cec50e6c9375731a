#include "trainer/step/agreement.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "comm/control.h"
#include "step_fixture.h"
#include "tests/comm/ranks.h"

namespace trireme::train {
namespace {

class AgreementTest : public ::testing::Test {
 protected:
  static Config config(const std::vector<std::string>& assignments) {
    return parse_config(kStepConfig, "test", assignments);
  }
  bool is_last() const { return world_->rank() == world_->size() - 1; }

  // What is said when the last rank has the other facts; empty when it may.
  std::string refusal(const Facts& common, const Facts& other) {
    try {
      require_alike(*world_, is_last() ? other : common);
    } catch (const comm::AgreedError& error) {
      EXPECT_EQ(error.code(), ExitCode::kBadConfig);
      EXPECT_EQ(error.rank(), world_->size() - 1);
      return error.what();
    }
    return {};
  }
  // The same for configurations.
  std::string refused(const std::vector<std::string>& assignments) {
    return refusal(program_facts(config({}).run), program_facts(config(assignments).run));
  }
  Facts inputs(const std::vector<std::string>& assignments) {
    const Config configured = config(assignments);
    const auto training = open_data(configured, data::Part::kTraining);
    const auto evaluation = open_data(configured, data::Part::kEvaluation);
    return input_facts(*cpu_, *training, *evaluation, build_network(configured, training->spec()));
  }
  // "rank 2 differs from rank 0: ", where there is more than one.
  std::string with_rank(const std::string& difference) const {
    if (world_->size() == 1) return {};
    return "rank " + std::to_string(world_->size() - 1) + " differs from rank 0: " + difference;
  }

  std::unique_ptr<comm::Communicator> world_ = test::join();
  std::unique_ptr<Device> cpu_ = create_cpu_device(1);
};

TEST_F(AgreementTest, AnotherFieldIsNamedWithBothValues) {
  EXPECT_EQ(refused({"batch.global=64"}), with_rank("batch.global is 64 there, 22 here"));
  EXPECT_EQ(refused({"train.precision=BF16"}),
            with_rank("train.precision is BF16 there, FP32 here"));
  EXPECT_EQ(refused({"batch.micro=8"}), with_rank("batch.micro is 8 there, not set here"));
  EXPECT_EQ(refused({"optimizer=adam"}).find("optimizer.adam.beta1 is 0.9 there, not set here") !=
                std::string::npos,
            world_->size() > 1);
  EXPECT_EQ(refused({"model.network.layer[3].dense.units=11"}),
            with_rank("model.network.layer[3].dense.units is 11 there, 10 here"));
}

TEST_F(AgreementTest, WhatHostsMayHaveOfTheirOwnIsLeftOut) {
  EXPECT_EQ(refused({}), "");
  EXPECT_EQ(refused({"run_dir=elsewhere", "data.root=elsewhere", "train.threads=3",
                     "data.threads=1", "data.prefetch=2"}),
            "");
}

TEST_F(AgreementTest, OtherSamplesAndShapesAreRefused) {
  EXPECT_EQ(refusal(inputs({}), inputs({})), "");
  EXPECT_EQ(refusal(inputs({}), inputs({"data.synthetic.eval_count=11"}))
                    .find("number of evaluation samples is 11 there, 10 here") != std::string::npos,
            world_->size() > 1);
  // The same form, other contents.
  const std::string other = refusal(inputs({}), inputs({"data.synthetic.seed=77"}));
  EXPECT_EQ(other.find("checksum of training samples is ") != std::string::npos, world_->size() > 1)
      << other;
  const std::string shape = refusal(inputs({}), inputs({"data.synthetic.shape=3,8,9"}));
  for (const char* part : {"dense_3.weight is [10, 576] there, [10, 512] here",
                           "number of parameters is 5994 there, 5354 here"}) {
    EXPECT_EQ(shape.find(part) != std::string::npos, world_->size() > 1) << shape;
  }
}

TEST_F(AgreementTest, OtherLayoutsAreRefused) {
  StepFixture fixture(*world_, kStepConfig, {"train.device=cpu"});
  const Facts common = layout_facts(fixture.step().parameters());
  model::Parameters moved = fixture.step().parameters();
  moved.all[0].begin += 16;
  EXPECT_EQ(refusal(common, common), "");
  EXPECT_EQ(refusal(common, layout_facts(moved)).empty(), world_->size() == 1);
}

TEST_F(AgreementTest, TheBuildIsKnown) {
  const std::string id = build_id();
  EXPECT_EQ(id.size(), 40u) << id;
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos) << id;
}

}  // namespace
}  // namespace trireme::train

int main(int argc, char** argv) { return trireme::test::run_on_all_ranks(argc, argv); }
