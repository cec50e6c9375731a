// Every user error results in one message that names its location, and in the right exit code, on
// any number of ranks.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/launch/program.h"

namespace trireme::testing {
namespace {

constexpr const char* kConfig = R"(# line 1
model { zoo { name: "mlp" hidden: 8 } }
data { csv { train_file: "train.csv" classes: 3 } holdout: 0.25 }
batch { global: 4 }
train { epochs: 1 }
schedule { learning_rate: 0.1 }
)";

std::string rows(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += std::to_string(i) + "," + std::to_string(i % 5) + "," + std::to_string(i % 3) + "\n";
  }
  return text;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string big_endian(const std::vector<uint32_t>& words) {
  std::string bytes;
  for (uint32_t word : words) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(word >> shift);
  }
  return bytes;
}

// The parameter is the number of ranks; 0 runs the program without a launcher.
class Failures : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    scratch_.write("train.csv", rows(16));
    config_ = kConfig;
  }

  Outcome train(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"train",     scratch_.write("run.txtpb", config_),
                                          "--set",     "data.root=" + scratch_.path().string(),
                                          "--run-dir", (scratch_ / "run").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, GetParam());
  }

  // Expects this exit code and one message that contains all fragments.
  void expect_failure(const Outcome& outcome, int code, const std::vector<std::string>& fragments) {
    EXPECT_EQ(outcome.code, code) << outcome.error << outcome.out;
    for (const std::string& fragment : fragments) {
      EXPECT_NE(outcome.error.find(fragment), std::string::npos) << fragment << " in\n"
                                                                 << outcome.error;
    }
    EXPECT_TRUE(outcome.error.starts_with("trireme: ")) << outcome.error;
    EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
  }

  // Writes an IDX data set of images [images, 2, 2] and labels, and selects it in the
  // configuration.
  void write_idx(uint32_t images, uint32_t labels, char label, size_t cut = 0) {
    config_ = replaced(config_, R"(csv { train_file: "train.csv" classes: 3 })",
                       R"(idx { train_images: "i" train_labels: "l" classes: 3 })");
    const std::string pixels(size_t{images} * 4, 'x');
    const std::string file = big_endian({0x00000803, images, 2, 2}) + pixels;
    scratch_.write("i", file.substr(0, file.size() - cut));
    scratch_.write("l", big_endian({0x00000801, labels}) + std::string(labels, label));
  }

  Scratch scratch_;
  std::string config_;
};

INSTANTIATE_TEST_SUITE_P(Ranks, Failures, ::testing::Values(0, 2), [](const auto& test) {
  return test.param == 0 ? std::string("alone") : std::to_string(test.param);
});

TEST_P(Failures, ValidConfigurationTrains) {
  const Outcome outcome = train();
  EXPECT_EQ(outcome.code, 0) << outcome.error;
}

TEST_P(Failures, MissingConfiguration) {
  expect_failure(run({"train", (scratch_ / "none.txtpb").string()}, GetParam()), 2, {"none.txtpb"});
}

TEST_P(Failures, UnknownField) {
  config_ = replaced(config_, "epochs: 1", "epochz: 1");
  expect_failure(train(), 2, {"run.txtpb:5", "epochz", "did you mean 'epochs'"});
}

TEST_P(Failures, UnknownFieldOnTheCommandLine) {
  expect_failure(train({"--set", "batch.golbal=8"}), 2, {"batch.golbal", "did you mean 'global'"});
}

TEST_P(Failures, WrongType) {
  config_ = replaced(config_, "global: 4", "global: \"four\"");
  expect_failure(train(), 2, {"run.txtpb:4", "global"});
}

TEST_P(Failures, UnknownNetwork) {
  config_ = replaced(config_, "\"mlp\" hidden: 8", "\"resnet19\"");
  expect_failure(train(), 2, {"run.txtpb:2", "model.zoo.name", "did you mean 'resnet18'"});
}

TEST_P(Failures, ShapeThatDoesNotFit) {
  config_ = replaced(config_, R"(zoo { name: "mlp" hidden: 8 })",
                     R"(network { layer { name: "first" conv2d { channels: 4 kernel: 3 } }
  layer { dense { units: 3 } } layer { softmax_cross_entropy {} } })");
  expect_failure(train(), 2, {"run.txtpb:2", "first", "[2]"});
}

TEST_P(Failures, BatchSmallerThanTheRanks) {
  const std::string one_less = std::to_string(std::max(GetParam(), 1) - 1);
  expect_failure(train({"--set", "batch.global=" + one_less}), 2, {"batch.global", one_less});
}

TEST_P(Failures, MissingFile) {
  config_ = replaced(config_, "train.csv", "gone.csv");
  expect_failure(train(), 3, {"gone.csv"});
}

TEST_P(Failures, TruncatedCsv) {
  scratch_.write("train.csv", rows(16) + "7,1");
  expect_failure(train(), 3, {"train.csv", "17"});
}

TEST_P(Failures, CsvThatHoldsNoNumber) {
  scratch_.write("train.csv", rows(9) + "1,one,2\n" + rows(3));
  expect_failure(train(), 3, {"train.csv", "10", "one"});
}

TEST_P(Failures, CsvLabelOutOfRange) {
  scratch_.write("train.csv", rows(9) + "1,1,3\n");
  expect_failure(train(), 3, {"train.csv", "10", "3"});
}

TEST_P(Failures, TruncatedIdx) {
  write_idx(12, 12, 1, 5);
  expect_failure(train(), 3, {"/i", "12, 2, 2", "43"});
}

TEST_P(Failures, IdxWithTooFewLabels) {
  write_idx(12, 11, 1);
  expect_failure(train(), 3, {"12", "11"});
}

TEST_P(Failures, MislabeledIdx) {
  write_idx(12, 12, 1);
  scratch_.write("i", "this is no IDX file at all, whatever its name says");
  expect_failure(train(), 3, {"/i"});
}

TEST_P(Failures, IdxLabelOutOfRange) {
  write_idx(12, 12, 9);
  expect_failure(train(), 3, {"/l", "9"});
}

// Uses a file in place of the folder, because root can write to any folder.
TEST_P(Failures, RunFolderThatCannotBeWritten) {
  scratch_.write("run", "in the way");
  expect_failure(train(), 1, {(scratch_ / "run").string()});
}

// The user's configuration and its comments were replaced by the resolved one.
TEST_P(Failures, RunFolderThatIsNotThatOfARun) {
  scratch_.write("run/config.txtpb", "# mine");
  expect_failure(train(), 2, {"run_dir: ", "is not the folder of a run, but has config.txtpb"});
  EXPECT_EQ(read_file(scratch_ / "run/config.txtpb"), "# mine");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "run/checkpoints"));
}

// A table steps.csv was replaced by metrics while it was read.
TEST_P(Failures, RunThatWouldReplaceItsData) {
  ASSERT_EQ(train().code, 0);
  const std::filesystem::path table = scratch_ / "run/steps.csv";
  std::filesystem::create_hard_link(scratch_ / "train.csv", table);
  expect_failure(train({"--set", "metrics.csv=true"}), 2,
                 {"run_dir: ", "steps.csv", "also its input", "train.csv"});
  EXPECT_EQ(read_file(table), rows(16));
}

}  // namespace
}  // namespace trireme::testing
