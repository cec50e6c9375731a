#include "trainer/step/rank_consistency.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "comm/control.h"
#include "step_fixture.h"
#include "temporary_folder.h"
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
  // Returns the error if the last rank reads tables from another folder, or "" if there is none.
  std::string refused_tables(const std::string& common, const std::string& other) {
    const TemporaryFolder folder;
    std::ofstream(folder.path() / "train.csv") << (is_last() ? other : common);
    const Config configured = config({"data={root: '" + folder.path().string() +
                                      "' csv {train_file: 'train.csv' eval_file: 'train.csv'}}"});
    const auto training = open_data(configured, data::Part::kTraining);
    try {
      const auto own =
          require_same_data(*world_, configured.run.data(), {{"training", training.get()}});
      EXPECT_EQ(own, std::vector{data::fingerprint_of(*training)}) << "each has files of its own";
    } catch (const comm::AgreedError& error) {
      EXPECT_EQ(error.code(), ExitCode::kBadData);
      EXPECT_EQ(error.rank(), world_->size() - 1);
      return error.what();
    }
    return {};
  }
  // refusal() for configurations.
  std::string refused(const std::vector<std::string>& assignments) {
    return refusal(program_properties(config({}).run), program_properties(config(assignments).run));
  }
  RankProperties network(const std::vector<std::string>& assignments) {
    const Config configured = config(assignments);
    const auto training = open_data(configured, data::Part::kTraining);
    return network_properties(*cpu_, build_network(configured, training->spec()));
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

TEST_F(RankConsistencyTest, RejectsDifferentShapes) {
  EXPECT_EQ(refusal(network({}), network({})), "");
  const std::string shape = refusal(network({}), network({"data.synthetic.shape=3,8,9"}));
  for (const char* part : {"dense_3.weight is [10, 576], but [10, 512] on rank 0",
                           "number of parameters is 5994, but 5354 on rank 0"}) {
    EXPECT_EQ(shape.find(part) != std::string::npos, world_->size() > 1) << shape;
  }
}

// Only 8 samples were compared.
TEST_F(RankConsistencyTest, RejectsACopyOfTheDataWithOneOtherLabel) {
  std::string rows;
  for (int row = 0; row < 101; ++row)
    rows += std::to_string(row) + ".5," + (row % 3 ? "0\n" : "1\n");
  EXPECT_EQ(refused_tables(rows, rows), "");
  std::string other = rows;
  other.replace(other.find("33.5,1"), 6, "33.5,0");
  const std::string label = refused_tables(rows, other);
  EXPECT_EQ(
      label.find("the ranks do not see the same data: rank " + std::to_string(world_->size() - 1) +
                 " differs from rank 0: checksum of targets of training samples is ") == 0,
      world_->size() > 1)
      << label;
  const std::string more = refused_tables(rows, rows + "1,1\n");
  EXPECT_EQ(more.find("number of training samples is 102, but 101 on rank 0") != std::string::npos,
            world_->size() > 1)
      << more;
}

// Ranks that see the same files leave reading them to one.
TEST_F(RankConsistencyTest, OneRankReadsTheSameFiles) {
  const Config configured = config({});
  const auto training = open_data(configured, data::Part::kTraining);
  const auto own =
      require_same_data(*world_, configured.run.data(), {{"training", training.get()}});
  EXPECT_EQ(own.size(), world_->rank() == 0 ? 1u : 0u);
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
