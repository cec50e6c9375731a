// Profiles steps of complete runs in this process, on every kind of device.
#include <algorithm>
#include <map>
#include <set>

#include "runs.h"

namespace trireme::train {
namespace {

using Json = nlohmann::json;

class ProfileRunTest : public RunTest {
 protected:
  // Profiles steps 9 to 16 of 20; an epoch has four.
  Json profile(const std::string& network, const std::string& name,
               std::vector<std::string> assignments = {}) {
    assignments.push_back("train.max_steps=20");
    train(config(network, name, assignments), *world_,
          {.quiet = true, .wait_for_saves = true, .profile = ProfileOptions{{9, 16}, {}}});
    return Json::parse(file(folder(name) / "trace.json"));
  }
};

int64_t nanoseconds(const Json& microseconds) {
  return std::llround(1000 * microseconds.get<double>());
}

// Returns the events of a rank by category, in file order.
std::map<std::string, std::vector<Json>> by_category(const Json& trace, int rank) {
  std::map<std::string, std::vector<Json>> events;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["pid"] == rank) events[event["cat"]].push_back(event);
  }
  return events;
}

void expect_contiguous_phases(const std::vector<Json>& steps, const std::vector<Json>& phases) {
  size_t next = 0;
  int64_t previous_end = 0;
  for (const Json& step : steps) {
    int64_t at = nanoseconds(step["ts"]);
    EXPECT_GE(at, previous_end);
    for (; next < phases.size() && phases[next]["args"]["step"] == step["args"]["step"]; ++next) {
      EXPECT_EQ(nanoseconds(phases[next]["ts"]), at) << phases[next];
      EXPECT_GE(nanoseconds(phases[next]["dur"]), 0) << phases[next];
      at += nanoseconds(phases[next]["dur"]);
    }
    EXPECT_EQ(at, nanoseconds(step["ts"]) + nanoseconds(step["dur"])) << step;
    previous_end = at;
  }
  EXPECT_EQ(next, phases.size());
}

TEST_P(ProfileRunTest, DoesNotChangeResults) {
  run(kSyncNorm, "plain", {"train.max_steps=20"});
  profile(kSyncNorm, "profiled");
  EXPECT_EQ(trace("profiled"), trace("plain"));
  EXPECT_EQ(model("profiled", 20), model("plain", 20));
}

TEST_P(ProfileRunTest, PhasesCoverTheStep) {
  const Json trace = profile(kSyncNorm, "profiled");
  for (int rank = 0; rank < world_->size(); ++rank) {
    auto events = by_category(trace, rank);
    ASSERT_EQ(events["step"].size(), 8u);
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(events["step"][i]["args"]["step"], 9 + i);
    EXPECT_EQ(events["phase"].size(), 8u * 6);
    expect_contiguous_phases(events["step"], events["phase"]);
  }
}

// The bubbles of a pipeline are phases, too.
TEST_P(ProfileRunTest, ShowsWhereStagesAreIdle) {
  if (world_->size() < 2 || GetParam() != "cpu") GTEST_SKIP() << "needs two stages";
  const Json trace = profile(kPlain, "stages", {"parallel.stages=2", "batch.micro=10"});
  for (int rank = 0; rank < world_->size(); ++rank) {
    auto events = by_category(trace, rank);
    expect_contiguous_phases(events["step"], events["phase"]);
    EXPECT_GE(
        std::ranges::count(events["phase"], "idle: other stages",
                           [](const Json& phase) { return phase["name"].get<std::string>(); }),
        8 * 2);
    const std::string place = rank == 0 ? "stage 0, replica 0" : "stage 1, replica 0";
    EXPECT_EQ(std::ranges::count_if(trace["traceEvents"],
                                    [&](const Json& event) {
                                      return event["name"] == "process_name" &&
                                             event["args"]["name"].get<std::string>().find(place) !=
                                                 std::string::npos;
                                    }),
              1);
  }
}

TEST_P(ProfileRunTest, EveryLayerIsWithinItsPhase) {
  const Json trace = profile(kSyncNorm, "profiled", {"batch.micro=10"});
  const int64_t passes = (50 / world_->size() + 9) / 10;
  for (int rank = 0; rank < world_->size(); ++rank) {
    auto events = by_category(trace, rank);
    for (const char* category : {"forward", "backward"}) {
      std::map<std::string, int64_t> times;
      for (const Json& event : events[category]) {
        ++times[event["name"]];
        const int64_t begin = nanoseconds(event["ts"]);
        const int64_t end = begin + nanoseconds(event["dur"]);
        EXPECT_LE(begin, end);
        EXPECT_EQ(std::ranges::count_if(events["phase"],
                                        [&](const Json& phase) {
                                          return phase["name"] == category &&
                                                 nanoseconds(phase["ts"]) <= begin &&
                                                 end <= nanoseconds(phase["ts"]) +
                                                            nanoseconds(phase["dur"]);
                                        }),
                  1)
            << event;
      }
      for (const char* layer : {"conv2d_0", "dense_5", "dense_8"}) {
        // The last step of an epoch has 40 samples.
        EXPECT_GE(times[layer], 6 * passes) << layer;
        EXPECT_LE(times[layer], 8 * passes) << layer;
      }
    }
  }
}

TEST_P(ProfileRunTest, RecordsEveryBucket) {
  const Json trace =
      profile(kPlain, "profiled",
              {"buckets.first_bytes=100", "buckets.bytes=100", "buckets.last_bytes=100"});
  for (int rank = 0; rank < world_->size(); ++rank) {
    auto sums = by_category(trace, rank)["communication"];
    std::map<std::pair<int64_t, int64_t>, int> times;
    std::set<int64_t> buckets;
    int64_t previous_end = 0;
    for (const Json& sum : sums) {
      EXPECT_GE(nanoseconds(sum["ts"]), previous_end);
      previous_end = nanoseconds(sum["ts"]) + nanoseconds(sum["dur"]);
      ++times[{sum["args"]["step"], sum["args"]["bucket"]}];
      buckets.insert(sum["args"]["bucket"].get<int64_t>());
    }
    EXPECT_EQ(buckets.size() > 1, world_->size() > 1);
    EXPECT_EQ(times.size(), 8 * buckets.size());
    for (const auto& [key, count] : times) EXPECT_EQ(count, 1);
  }
}

// With ZeRO, parameters are gathered, beginning with the last bucket, before gradients are summed.
TEST_P(ProfileRunTest, RecordsTheGathersOfSharedParameters) {
  const Json trace = profile(kPlain, "profiled",
                             {"buckets.first_bytes=100", "buckets.bytes=100",
                              "buckets.last_bytes=100", "parallel.shard=OPTIMIZER"});
  for (int rank = 0; rank < world_->size(); ++rank) {
    std::vector<std::string> names;  // of a step
    int64_t previous_end = 0;
    auto events = by_category(trace, rank);
    for (const Json& event : events["communication"]) {
      EXPECT_GE(nanoseconds(event["ts"]), previous_end) << event;
      previous_end = nanoseconds(event["ts"]) + nanoseconds(event["dur"]);
      if (event["args"]["step"] == 12) names.push_back(event["name"]);
    }
    const size_t buckets = names.size() / 2;
    EXPECT_EQ(buckets > 1, world_->size() > 1);
    for (size_t i = 0; i < buckets; ++i) {
      EXPECT_EQ(names[i], "all-gather, bucket " + std::to_string(buckets - 1 - i));
      EXPECT_EQ(names[buckets + i], "reduce-scatter, bucket " + std::to_string(i));
    }
  }
}

TRIREME_ON_ALL_DEVICES(ProfileRunTest);

}  // namespace
}  // namespace trireme::train
