// Data that is damaged, missing or late. All ranks must follow the configured policy and count the
// same bad records; if the run ends, the message must name the file and the record.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/images/codec.h"
#include "tests/data/tars.h"
#include "tests/faults/faults.h"

namespace trireme::testing {
namespace {

constexpr double kTimeout = 3;  // of kEndlessRun
constexpr double kBound = 10;   // seconds, for runs that end by themselves

constexpr const char* kTable = R"(
model { zoo { name: "mlp" hidden: 8 } }
data { csv { train_file: "train.csv" classes: 3 } holdout: 0.25 }
batch { global: 16 }
train { epochs: 3 log_every_steps: 1 }
schedule { learning_rate: 0.01 }
watchdog { timeout_seconds: 3 first_timeout_seconds: 20 }
)";

class Data : public FaultTest {
 protected:
  // Returns 200 lines, of which those in `bad` do not parse.
  static std::string rows(const std::vector<int>& bad) {
    std::string text;
    for (int line = 1; line <= 200; ++line) {
      const bool is_bad = std::find(bad.begin(), bad.end(), line) != bad.end();
      text += is_bad ? "1,x,0\n" : std::to_string(line) + ",2," + std::to_string(line % 3) + "\n";
    }
    return text;
  }
  // Trains on two ranks, each with a file of its own.
  Outcome train_on(const std::string& mine, const std::string& theirs,
                   const std::vector<std::string>& more) {
    config_ = scratch_.write("table.txtpb", kTable);
    scratch_.write("mine/train.csv", mine);
    scratch_.write("theirs/train.csv", theirs);
    const auto from = [&](const char* folder) {
      std::vector<std::string> arguments = more;
      arguments.insert(arguments.end(), {"--set", "data.root=" + (scratch_ / folder).string()});
      return train(arguments);
    };
    return Program({Program::Group{from("mine"), 1}, Program::Group{from("theirs"), 1}}).wait();
  }
  void expect_bad_data(const Outcome& outcome, const std::string& message) const {
    EXPECT_EQ(outcome.code, 3) << outcome.error;
    EXPECT_LT(outcome.seconds, kBound);
    EXPECT_NE(outcome.error.find(message), std::string::npos) << message << " in\n"
                                                              << outcome.error;
    expect_none_left();
  }
  std::vector<nlohmann::json> records(const std::string& event) const {
    std::vector<nlohmann::json> found;
    std::ifstream file(run_dir() / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      found.push_back(nlohmann::json::parse(line));
      if (found.back()["event"] != event) found.pop_back();
    }
    return found;
  }
};

const std::vector<std::string> kSkip = {"--set", "data.on_bad_record=SKIP"};

// With these options, sample 1300 of kEndlessRun is read once per epoch, by rank 1 in step 40.
std::vector<std::string> in_order(int threads) {
  return {"--set", "data.shuffle=false",
          "--set", "train.eval_every_steps=0",
          "--set", "data.threads=" + std::to_string(threads)};
}

TEST_F(Data, AllRanksSkipCorruptRecords) {
  const Outcome outcome = train_on(rows({7, 50, 51}), rows({7, 50, 51}), kSkip);
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(lines_with(outcome.out, "warning: skipped: ").size(), 3u) << outcome.out;
  EXPECT_EQ(lines_with(outcome.out, "mine/train.csv: line 7, column 2: 'x' is not a number").size(),
            1u);
  EXPECT_EQ(lines_with(outcome.out, "data: 3 bad records skipped").size(), 1u) << outcome.out;
  EXPECT_EQ(records("start").at(0)["bad_records"], 3);
  EXPECT_EQ(records("eval").back()["samples"], 49);  // a quarter of 197
}

TEST_F(Data, CorruptRecordsEndTheRunByDefault) {
  expect_bad_data(train_on(rows({7}), rows({7}), {}),
                  "train.csv: line 7, column 2: 'x' is not a number");
}

TEST_F(Data, MaxBadRecordsEndsTheRun) {
  std::vector<std::string> more = kSkip;
  more.insert(more.end(), {"--set", "data.max_bad_records=2"});
  expect_bad_data(train_on(rows({7, 50, 51}), rows({7, 50, 51}), more),
                  "3 bad records, more than data.max_bad_records, 2; the first: ");
}

TEST_F(Data, ReportsRanksThatSeeDifferentData) {
  expect_bad_data(train_on(rows({}), rows({7}), kSkip),
                  "the ranks do not see the same data: rank 0 has 150 training samples (0 bad "
                  "records skipped) and 50 evaluation samples (0 skipped); rank 1 has 149 ");
}

TEST_F(Data, ReportsRanksThatSeeAnotherLabel) {
  std::string other = rows({});
  const size_t label = other.find('\n', other.size() / 3) - 1;
  other[label] = other[label] == '0' ? '1' : '0';
  expect_bad_data(train_on(rows({}), other, {}),
                  "the ranks do not see the same data: rank 1 differs from rank 0:");
}

TEST_F(Data, NamesATruncatedFile) {
  scratch_.write("cifar/data_batch_1.bin", std::string(3073 * 40 + 17, '\1'));
  const std::vector<std::string> cifar = {"--set", "data.cifar.train_file=data_batch_1.bin",
                                          "--set", "data.holdout=0.5",
                                          "--set", "data.root=" + (scratch_ / "cifar").string()};
  expect_bad_data(run(train(cifar), 2),
                  "cifar/data_batch_1.bin: record 40: is truncated: the file's 122937 bytes");
}

TEST_F(Data, NamesAMissingFile) {
  std::filesystem::create_directories(scratch_ / "cifar");
  expect_bad_data(run(train({"--set", "data.cifar.variant=CIFAR100", "--set",
                             "data.root=" + (scratch_ / "cifar").string()}),
                      2),
                  "cifar: has no file train.bin or ");
}

TEST_F(Data, SkipsAndCountsUnreadableSamples) {
  std::vector<std::string> more = kSkip;
  more.insert(more.end(), {"--set", "train.max_steps=120", "--set", "data.threads=1"});
  const Outcome outcome = broken("data skip rank=1 times=3", 2, more);
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_FALSE(
      lines_with(outcome.out, "warning: skipped: rank 1: synthetic: cannot be read").empty())
      << outcome.out;
  EXPECT_EQ(lines_with(outcome.out, "data: 3 bad records skipped").size(), 1u) << outcome.out;
  int64_t last = 0;
  for (const auto& step : records("step")) last = step.value("bad_records", last);
  EXPECT_EQ(last, 3);
}

TEST_F(Data, UnreadableSamplesEndTheRunByDefault) {
  expect_bad_data(broken("data skip rank=1 index=1300", 2, in_order(0)),
                  "synthetic: cannot be read");
}

TEST_F(Data, ReportsTheSampleOfAFailedDataThread) {
  const Outcome outcome = broken("data throw rank=1 index=1300", 2, in_order(2));
  expect_bad_data(outcome,
                  "sample 1300 of epoch 1 (synthetic): could not be read: injected at data");
}

TEST_F(Data, ReportsTheSampleOfAStalledDataThread) {
  expect_same_diagnosis(
      broken("data sleep rank=1 index=1300", 2, in_order(2)), kTimeout + 5,
      {"rank 1 (", "data", "waiting for sample 1300 of epoch 1 (synthetic), which worker "},
      {0, 1});
}

TEST_F(Data, ReportsAStallWithoutDataThreads) {
  expect_same_diagnosis(broken("data sleep rank=1 index=1300", 2, in_order(0)), kTimeout + 5,
                        {"rank 1 (", "data", "waiting for sample "}, {0, 1});
}

TEST_F(Data, ReportsAStallOfASingleRank) {
  expect_same_diagnosis(broken("data sleep index=1300", 0, in_order(1)), kTimeout + 5,
                        {"rank 0 (", "stuck in data", "waiting for sample "}, {0});
}

TEST_F(Data, ReportsAStallInEvaluation) {
  expect_same_diagnosis(broken("data sleep rank=1 index=3000", 2,
                               {"--set", "data.shuffle=false", "--set", "train.max_steps=1"}),
                        kTimeout + 5, {"rank 1 (", "waiting for sample "}, {0, 1});
}

namespace fs = std::filesystem;

// Without shuffling, batch k consists of the samples of shard k.
constexpr const char* kShards = R"(
model { zoo { name: "mlp" hidden: 8 } }
data { webdataset { train: "t-*.tar" eval: "e.tar" classes: 3 } shuffle: false threads: 1 }
batch { global: 16 }
train { epochs: 1 }
schedule { learning_rate: 0.01 }
watchdog { timeout_seconds: 3 first_timeout_seconds: 20 }
)";
// A bad image must not change what happens to the others; batches of 6 are divided evenly and not.
constexpr const char* kDropout = R"(
model { network {
  name: "dropout" layer { flatten {} } layer { dense { units: 12 } } layer { dropout { rate: 0.3 } }
  layer { dense { units: 3 } } layer { softmax_cross_entropy {} }
} }
data { image_folder {} on_bad_record: SKIP max_bad_records: 1 mix { mixup_alpha: 1 } }
batch { global: 6 }
train { epochs: 3 log_every_steps: 1 }
optimizer { sgd {} }
schedule { learning_rate: 0.05 }
watchdog { timeout_seconds: 3 first_timeout_seconds: 20 }
)";
constexpr const char* kFolders = R"(
model { zoo { name: "mlp" hidden: 8 } }
data { image_folder {} }
batch { global: 16 }
train { epochs: 1 }
schedule { learning_rate: 0.01 }
watchdog { timeout_seconds: 3 first_timeout_seconds: 20 }
)";

class Images : public Data {
 protected:
  static std::string jpeg(int number) {
    std::vector<uint8_t> pixels(size_t{8 * 8 * 3});
    for (size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = static_cast<uint8_t>((i * 7 + static_cast<size_t>(number) * 31) % 256);
    }
    const auto bytes = data::encode_jpeg(data::view_of(pixels.data(), {8, 8}, 3), 90);
    return {bytes.begin(), bytes.end()};
  }
  static std::string sample(int number) {
    return sample_members(fmt::format("{:04}", number), jpeg(number), std::to_string(number % 3));
  }
  static std::string samples(int first, int count) {
    std::string bytes;
    for (int i = first; i < first + count; ++i) bytes += sample(i);
    return bytes;
  }
  std::string shard(int number) const {
    return (scratch_ / fmt::format("set/t-{:02}.tar", number)).string();
  }
  // Writes 40 shards of 16 samples; shard `other` gets `bytes` instead.
  void write_shards(int other, const std::string& bytes) {
    config_ = scratch_.write("shards.txtpb", kShards);
    for (int i = 0; i < 40; ++i) {
      const std::string name = fmt::format("set/t-{:02}.tar", i);
      scratch_.write(name, i == other ? bytes : samples(16 * i, 16) + tar_end());
    }
    scratch_.write("set/e.tar", samples(0, 20) + tar_end());
  }
  void write_folders() {
    config_ = scratch_.write("folders.txtpb", kFolders);
    for (int i = 0; i < 60; ++i) {
      scratch_.write(fmt::format("set/{}/{}/{}.jpg", i % 5 == 0 ? "val" : "train", i % 3, i),
                     jpeg(i));
    }
  }
  // Damages images of the training folder.
  void damage(const std::vector<int>& numbers) const {
    for (const int i : numbers) {
      scratch_.write(fmt::format("set/train/{}/{}.jpg", i % 3, i), jpeg(i).substr(0, 300));
    }
  }
  std::vector<std::string> train_set(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = more;
    arguments.insert(arguments.end(), {"--set", "data.root=" + (scratch_ / "set").string()});
    return train(arguments);
  }
  // Expects the set to end a run on two ranks with this message, and to be trained on with
  // on_bad_record=SKIP, which skips `bad` records.
  void expect_policy(const std::string& message, int64_t bad) {
    expect_bad_data(run(train_set(), 2), message);
    const Outcome outcome = run(train_set(kSkip), 2);
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    expect_skipped(outcome, message, bad);
  }
  void expect_skipped(const Outcome& outcome, const std::string& message, int64_t bad) {
    EXPECT_LT(outcome.seconds, kBound);
    EXPECT_FALSE(lines_with(outcome.out, message).empty()) << message << " in\n" << outcome.out;
    EXPECT_EQ(lines_with(outcome.out, fmt::format("data: {} bad record", bad)).size(), 1u)
        << outcome.out;
    expect_none_left();
  }
};

TEST_F(Images, ReportsATruncatedTar) {
  const std::string complete = samples(0, 16);
  write_shards(20, complete.substr(0, complete.size() / 2 + 700));
  expect_policy("t-20.tar: 0008: is truncated within 0008.jpg: ", 1);
}

TEST_F(Images, ReportsSamplesWithTheSameKey) {
  write_shards(20, samples(0, 8) + samples(4, 8) + tar_end());
  expect_policy("t-20.tar: 0004: another sample of the shard has the same key", 4);
}

TEST_F(Images, ReportsALabelOutOfRange) {
  write_shards(20, samples(0, 7) + sample_members("x", jpeg(1), "3") + tar_end());
  expect_policy("t-20.tar: x.jpg: label 3 is not in [0, 3)", 1);
}

TEST_F(Images, ReportsATruncatedJpegInAShard) {
  write_shards(20, samples(0, 7) + sample_members("x", jpeg(1).substr(0, 300), "2") + tar_end());
  expect_policy("t-20.tar: x.jpg: ", 1);
}

TEST_F(Images, UnreadableShardEndsTheRun) {
  write_shards(-1, "");
  fs::remove(shard(20));
  fs::create_directory(shard(20));
  expect_bad_data(run(train_set(), 2), "t-20.tar: is a folder");
  expect_bad_data(run(train_set(kSkip), 2), "t-20.tar: is a folder");  // not a record
}

// The second run finds the index of the first one, which is older than the shard and does not match
// its size.
TEST_F(Images, IgnoresAnIndexOlderThanItsShard) {
  write_shards(-1, "");
  EXPECT_EQ(run(train_set(), 2).code, 0);
  fs::remove_all(run_dir());
  const auto indexed = fs::last_write_time(shard(20) + ".index");
  scratch_.write("set/t-20.tar", samples(0, 24) + tar_end());
  fs::last_write_time(shard(20), indexed + std::chrono::hours(1));
  const Outcome outcome = run(train_set(), 2);
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_FALSE(lines_with(outcome.out, "648 samples").empty()) << outcome.out;
}

// The ranks do not compare samples of shard 20 before the first step, so it is not open yet when it
// is removed.
class Vanishing : public Images {
 protected:
  Outcome vanish(const std::vector<std::string>& more) {
    write_shards(-1, "");
    const fs::path reached = scratch_ / "reached";
    Program program(train_set(more), 2,
                    {"TRIREME_INJECT=data sleep index=40 seconds=1.5 once=" + reached.string()});
    EXPECT_TRUE(wait_for(reached, kBound));
    fs::remove(shard(20));
    return program.wait();
  }
};

TEST_F(Vanishing, RemovedShardEndsTheRunByDefault) {
  expect_bad_data(vanish({}), "t-20.tar: cannot be opened: No such file or directory");
}

TEST_F(Vanishing, RemovedShardIsSkipped) {
  const Outcome outcome = vanish(kSkip);
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  // Only rank 1 skips its half: rank 0 opened the shard to compute the checksum of the data.
  expect_skipped(outcome, "t-20.tar: cannot be opened: No such file or directory", 8);
}

// Like storage that does not respond.
TEST_F(Images, NamesAStalledShard) {
  write_shards(-1, "");
  for (const int threads : {0, 2}) {
    fs::remove_all(run_dir());
    const std::vector<std::string> more = {"--set", "data.threads=" + std::to_string(threads),
                                           "--set", "data.root=" + (scratch_ / "set").string()};
    const std::string source = "t-20.tar: 0328.jpg)";
    expect_same_diagnosis(broken("data sleep rank=1 index=328", 2, more), kTimeout + 5,
                          {"rank 1 (", "data", "waiting for sample 328 of epoch 1 (",
                           threads > 0 ? source + ", which worker " : source},
                          {0, 1});
  }
}

TEST_F(Images, ReportsAClassWithoutImages) {
  write_folders();
  fs::create_directory(scratch_ / "set/train/cow");
  expect_policy("set/train/cow: class 'cow' has no image", 1);
}

TEST_F(Images, ReportsAnUnreadableFile) {
  write_folders();
  fs::create_symlink("nowhere", scratch_ / "set/train/1/x.jpg");
  expect_policy("set/train/1/x.jpg: is a link to a file that does not exist", 1);
}

TEST_F(Images, ReportsATruncatedJpegInAFolder) {
  write_folders();
  scratch_.write("set/train/1/x.jpg", jpeg(1).substr(0, 300));
  expect_policy("set/train/1/x.jpg: ", 1);
}

TEST_F(Images, ASkippedImageChangesNoLossOfAnyNumberOfRanks) {
  write_folders();
  damage({7});
  config_ = scratch_.write("dropout.txtpb", kDropout);
  std::vector<double> expected;
  for (const int ranks : {1, 2, 3}) {
    fs::remove_all(run_dir());
    const Outcome outcome = run(train_set(), ranks);
    ASSERT_EQ(outcome.code, 0) << outcome.error;
    std::vector<double> losses;
    for (const auto& step : records("step")) losses.push_back(step["train_loss"]);
    ASSERT_EQ(losses.size(), 24u);
    if (ranks == 1) expected = losses;
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], expected[i], 1e-5) << "step " << i << " on " << ranks << " ranks";
    }
  }
}

TEST_F(Images, TheLimitOfBadImagesIsForAllRanksAndOneEpoch) {
  write_folders();
  damage({7, 8, 21, 34});
  config_ = scratch_.write("dropout.txtpb", kDropout);
  expect_bad_data(run(train_set({"--set", "data.max_bad_records=3"}), 2),
                  "4 bad records, more than data.max_bad_records, 3; the first: ");
  for (const auto& step : records("step")) EXPECT_EQ(step["epoch"], 0);
  fs::remove_all(run_dir());
  const Outcome outcome = run(train_set({"--set", "data.max_bad_records=4"}), 2);
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(lines_with(outcome.out, "data: 12 bad records skipped").size(), 1u) << outcome.out;
}

}  // namespace
}  // namespace trireme::testing
