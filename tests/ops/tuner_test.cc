// Measuring, choosing and caching of algorithms; on the CPU, with algorithms that only sleep.
#include "ops/cuda/tuner.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

namespace trireme::ops::cuda {
namespace {

constexpr auto kFast = std::chrono::microseconds(100);
constexpr auto kSlow = std::chrono::milliseconds(5);
const std::vector<size_t> kBytes{64, 0, 128};

struct Counts {
  std::atomic<int> lists = 0, builds = 0, runs = 0;
};

class Wait final : public Algorithm {
 public:
  Wait(std::chrono::microseconds time, Counts& counts) : time_(time), counts_(counts) {}
  size_t workspace_bytes() const override { return 32; }
  void run(Stream&, Args args, void* workspace) const override {
    if (args.size() != kBytes.size() || !workspace)
      throw Error("not the memory that was asked for");
    ++counts_.runs;
    std::this_thread::sleep_for(time_);
  }

 private:
  std::chrono::microseconds time_;
  Counts& counts_;
};

class Broken final : public Algorithm {
 public:
  size_t workspace_bytes() const override { return 0; }
  void run(Stream&, Args, void*) const override { throw DeviceError("run", "broken"); }
};

class TunerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string root = testing::TempDir() + "/tuner.XXXXXX";
    ASSERT_TRUE(mkdtemp(root.data()));
    root_ = root;
    folder_ = root_ / "cache";
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  Tuner tuner(const std::string& measured_on = "library 1 on device") {
    return Tuner(*device_, folder_.string(), measured_on);
  }
  Candidate candidate(const std::string& name, std::chrono::microseconds time) {
    return {name, [this, time] {
              ++counts_.builds;
              return std::make_shared<const Wait>(time, counts_);
            }};
  }
  static Candidate impossible(const std::string& name) {
    return {name, []() -> AlgorithmPtr { return nullptr; }};
  }
  static Candidate broken(const std::string& name) {
    return {name, [] { return std::make_shared<const Broken>(); }};
  }
  AlgorithmPtr choose(Tuner& tuner, const std::string& key, std::vector<Candidate> candidates) {
    return tuner.choose(key, kBytes, [&] {
      ++counts_.lists;
      return candidates;
    });
  }
  std::filesystem::path file() const { return folder_ / "library-1-on-device.json"; }
  std::string name_in_file(const std::string& key) const {
    std::ifstream in(file());
    return nlohmann::json::parse(in).at("choices").at(key);
  }

  Counts counts_;
  std::unique_ptr<Device> device_ = create_cpu_device(1);
  std::filesystem::path root_, folder_;
};

TEST_F(TunerTest, ChoosesTheFastest) {
  Tuner one = tuner();
  choose(one, "work",
         {candidate("slow", kSlow), candidate("fast", kFast), impossible("none"),
          candidate("slow too", kSlow)});
  EXPECT_EQ(name_in_file("work"), "fast");
}

TEST_F(TunerTest, ListsCandidatesOnceAndSharesTheChoice) {
  Tuner one = tuner();
  const AlgorithmPtr first = choose(one, "work", {candidate("only", kFast)});
  EXPECT_EQ(choose(one, "work", {}), first);
  EXPECT_EQ(counts_.lists, 1);
  EXPECT_EQ(counts_.runs, 0) << "measured although there was nothing to compare";
}

TEST_F(TunerTest, AnotherProcessUsesTheCachedChoice) {
  Tuner one = tuner();
  choose(one, "work", {candidate("slow", kSlow), candidate("fast", kFast)});
  counts_.builds = counts_.runs = 0;
  Tuner two = tuner();
  choose(two, "work", {candidate("slow", kSlow), candidate("fast", kFast)});
  EXPECT_EQ(counts_.builds, 1);
  EXPECT_EQ(counts_.runs, 0);
}

TEST_F(TunerTest, WithoutAFolderChoicesAreNotShared) {
  Tuner one(*device_, "", "library 1 on device");
  choose(one, "work", {candidate("slow", kSlow), candidate("fast", kFast)});
  choose(one, "work", {});
  EXPECT_EQ(counts_.lists, 1);
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(TunerTest, MeasuresIfTheFolderCannotBeCreated) {
  std::ofstream(folder_) << "a file, not a folder";
  Tuner one = tuner();
  EXPECT_TRUE(choose(one, "work", {candidate("slow", kSlow), candidate("fast", kFast)}));
}

TEST_F(TunerTest, DamagedFilesAreReplaced) {
  std::filesystem::create_directories(folder_);
  for (const char* text :
       {"", "{", "[]", "{\"measured_on\": 1}", "{\"measured_on\": \"library 1 on device\"}",
        "{\"measured_on\": \"library 1 on device\", \"choices\": {\"work\": 1}}"}) {
    std::ofstream(file()) << text;
    Tuner one = tuner();
    choose(one, "work", {candidate("slow", kSlow), candidate("fast", kFast)});
    EXPECT_EQ(name_in_file("work"), "fast") << text;
  }
}

TEST_F(TunerTest, IgnoresMeasurementsFromElsewhere) {
  Tuner one = tuner("library 1 on device");
  choose(one, "work", {candidate("slow", kSlow), candidate("fast", kFast)});
  counts_.runs = 0;
  Tuner two = tuner("library 1 on:device");  // its file has the same name
  choose(two, "work", {candidate("slow", kSlow), candidate("fast", kFast)});
  EXPECT_GT(counts_.runs, 0);
}

TEST_F(TunerTest, MeasuresAgainIfTheCachedChoiceCannotBeBuilt) {
  Tuner one = tuner();
  choose(one, "work", {candidate("slow", kSlow), candidate("fast", kFast)});
  for (const Candidate& gone : {impossible("fast"), candidate("other", kSlow)}) {
    Tuner two = tuner();
    choose(two, "work", {gone, candidate("slow", kSlow), candidate("new", kFast)});
    EXPECT_EQ(name_in_file("work"), "new");
    Tuner three = tuner();
    choose(three, "work", {candidate("slow", kSlow), candidate("fast", kFast)});
    EXPECT_EQ(name_in_file("work"), "fast");
  }
}

// Otherwise measurement noise would make ranks, or successive runs, differ.
TEST_F(TunerTest, FollowsTheFirstWrittenChoice) {
  Tuner one = tuner(), two = tuner();
  choose(one, "work", {candidate("a", kSlow), candidate("b", kFast)});
  const AlgorithmPtr followed = choose(two, "work", {candidate("a", kFast), candidate("b", kSlow)});
  EXPECT_EQ(name_in_file("work"), "b");
  const auto stream = device_->create_stream(StreamKind::kCompute);
  std::byte memory[1];
  void* const args[] = {memory, memory, memory};
  const auto start = std::chrono::steady_clock::now();
  followed->run(*stream, args, memory);
  EXPECT_GE(std::chrono::steady_clock::now() - start, kSlow);
}

TEST_F(TunerTest, ConcurrentTunersLoseNoChoices) {
  constexpr int kThreads = 4, kKeys = 8;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      Tuner own = tuner();
      for (int k = 0; k < kKeys; ++k) {
        choose(own, std::to_string(t) + "/" + std::to_string(k), {candidate("only", kFast)});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t) {
    for (int k = 0; k < kKeys; ++k) {
      EXPECT_EQ(name_in_file(std::to_string(t) + "/" + std::to_string(k)), "only");
    }
  }
}

TEST_F(TunerTest, ReportsMissingAlgorithmsEveryTimeButListsOnce) {
  Tuner one = tuner();
  EXPECT_THROW(choose(one, "work", {impossible("a"), impossible("b")}), Unsupported);
  EXPECT_THROW(choose(one, "work", {candidate("fast", kFast)}), Unsupported);
  EXPECT_EQ(counts_.lists, 1);
}

TEST_F(TunerTest, SkipsFailingCandidates) {
  Tuner one = tuner();
  choose(one, "work", {broken("broken"), candidate("slow", kSlow), candidate("fast", kFast)});
  EXPECT_EQ(name_in_file("work"), "fast");
}

TEST_F(TunerTest, ErrorNamesAllFailedCandidates) {
  Tuner one = tuner();
  try {
    choose(one, "work", {broken("a"), broken("b")});
    FAIL();
  } catch (const Unsupported& error) {
    EXPECT_STREQ(error.what(),
                 "measuring work: no algorithm runs; a: run failed: broken; b: run failed: broken");
  }
}

TEST_F(TunerTest, WithoutMeasuringTheFirstBuildableCandidateIsChosen) {
  Tuner one(*device_, folder_.string(), "library 1 on device", /*measure=*/false);
  EXPECT_TRUE(choose(one, "work",
                     {impossible("none"), candidate("slow", kSlow), candidate("fast", kFast)}));
  EXPECT_EQ(counts_.builds, 1);
  EXPECT_EQ(counts_.runs, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_)) << "others would use it as the fastest";
}

TEST_F(TunerTest, WithoutMeasuringCachedChoicesAreUsed) {
  Tuner one = tuner();
  choose(one, "work", {candidate("slow", kSlow), candidate("fast", kFast)});
  counts_.runs = 0;
  Tuner two(*device_, folder_.string(), "library 1 on device", /*measure=*/false);
  const AlgorithmPtr fast =
      choose(two, "work", {impossible("slow"), impossible("other"), candidate("fast", kFast)});
  EXPECT_TRUE(fast);
  EXPECT_EQ(counts_.runs, 0);
}

}  // namespace
}  // namespace trireme::ops::cuda
