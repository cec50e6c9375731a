#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "trainer/profile/clocks.h"
#include "trainer/profile/table.h"
#include "trainer/profile/trace_event.h"
#include "trainer/profile/window.h"

namespace trireme::train {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

TEST(StepWindowTest, ParsesTwoNumbers) {
  EXPECT_EQ(parse_step_window("steps=10..20"), (StepWindow{10, 20}));
  EXPECT_EQ(parse_step_window("steps=7..7"), (StepWindow{7, 7}));
  EXPECT_EQ(parse_step_window("steps=1..1000").steps(), kMaxProfiledSteps);
  EXPECT_EQ(to_string(StepWindow{10, 20}), "steps 10 to 20");
  EXPECT_EQ(to_string(StepWindow{7, 7}), "step 7");
}

TEST(StepWindowTest, RejectsAnythingElseWithTheReason) {
  const auto reason = [](const std::string& text) -> std::string {
    try {
      parse_step_window(text);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(reason("steps=20..10"), "'steps=20..10' ends before it begins");
  EXPECT_THAT(reason("steps=0..3"), HasSubstr("the first step, which is step 1"));
  EXPECT_THAT(reason("steps=-3..3"), HasSubstr("the first step, which is step 1"));
  EXPECT_THAT(reason("steps=1..1001"), HasSubstr("at most 1000 steps"));
  EXPECT_THAT(reason("steps=1..9223372036854775807"), HasSubstr("at most 1000 steps"));
  for (const char* text :
       {"", "10..20", "step=10..20", "steps=10", "steps=10-20", "steps:10..20"}) {
    EXPECT_THAT(reason(text), HasSubstr("is not of the form steps=FIRST..LAST")) << text;
  }
  for (const char* text :
       {"steps=..", "steps=1..", "steps=..2", "steps=1..2x", "steps=1...2", "steps= 1..2",
        "steps=1..2 ", "steps=+1..2", "steps=1.5..2", "steps=1..99999999999999999999"}) {
    EXPECT_THAT(reason(text), HasSubstr("does not contain two integers")) << text;
  }
}

// All-gathers that take the given delays, on a rank whose clock is ahead by `ahead`.
std::vector<ClockExchange> exchanges(int64_t ahead, std::initializer_list<int64_t> delays) {
  std::vector<ClockExchange> rounds;
  int64_t now = 1000;
  for (int64_t delay : delays) {
    rounds.push_back({now + ahead, now + delay + ahead});
    now += 10 * delay;
  }
  return rounds;
}

TEST(ClockOffsetTest, IsBoundedByTheFastestRound) {
  const ClockOffset offset =
      clock_offset(exchanges(0, {90, 20, 50}), exchanges(5000, {90, 20, 50}));
  EXPECT_NEAR(static_cast<double>(offset.ahead), 5000, 20);
  EXPECT_LE(std::abs(offset.ahead - 5000), offset.uncertainty);
  EXPECT_LE(offset.uncertainty, 20);
  EXPECT_LT(clock_offset(exchanges(0, {40}), exchanges(-5000, {40})).ahead, -4900);
}

TEST(ClockOffsetTest, IsZeroIfTheClocksMayBeTheSame) {
  const ClockOffset offset = clock_offset(exchanges(0, {90, 20}), exchanges(3, {90, 20}));
  EXPECT_EQ(offset.ahead, 0);
  EXPECT_GE(offset.uncertainty, 3);
}

// Two steps of 10 and 12 us with a gap of 2 us; layer "a" runs twice in each, as with two passes.
RankTrace two_steps() {
  RankTrace trace{
      .rank = 1, .process = "rank 1 (host \"b\")", .tracks = {}, .descriptors = {}, .events = {}};
  trace.tracks = {{kStepTrack, "step"}, {kComputeTrack, "compute"}};
  const Json conv{{"kind", "conv2d"}, {"FLOP", 4000.0}, {"bytes", 100.0}};
  const Json relu{{"kind", "relu"}, {"FLOP", 0.0}, {"bytes", 3000.0}};
  trace.descriptors = {{"step", kStepCategory},       {"forward", kPhaseCategory},
                       {"update", kPhaseCategory},    {"a", kForwardCategory, conv},
                       {"b", kForwardCategory, relu}, {"a", kBackwardCategory, conv}};
  enum { kStep, kForward, kUpdate, kA, kB, kABackward };
  trace.events = {
      {kStepTrack, kStep, 5, 1000, 10000},   {kStepTrack, kForward, 5, 1000, 8000},
      {kStepTrack, kUpdate, 5, 9000, 2000},  {kComputeTrack, kA, 5, 1000, 1000},
      {kComputeTrack, kB, 5, 2000, 5000},    {kComputeTrack, kABackward, 5, 7000, 1001},
      {kStepTrack, kStep, 6, 13000, 12000},  {kStepTrack, kForward, 6, 13000, 10000},
      {kStepTrack, kUpdate, 6, 23000, 2000}, {kComputeTrack, kA, 6, 13000, 1000},
      {kComputeTrack, kB, 6, 14000, 7000},   {kComputeTrack, kABackward, 6, 21000, 999}};
  return trace;
}

TEST(TraceTest, IsJsonWithNamesAndTimesInMicroseconds) {
  const Json trace = Json::parse(trace_head() + trace_events(two_steps(), true) +
                                 trace_events(two_steps(), false) + trace_tail({{"ranks", 2}}));
  EXPECT_EQ(trace["otherData"]["ranks"], 2);
  const Json& events = trace["traceEvents"];
  ASSERT_EQ(events.size(), 2u * (2 + 2 * 2 + 12));
  const Json process{{"ph", "M"}, {"name", "process_name"},
                     {"pid", 1},  {"tid", 0},
                     {"ts", 0},   {"args", {{"name", "rank 1 (host \"b\")"}}}};
  EXPECT_EQ(events[0], process);
  const Json thread{{"ph", "M"}, {"name", "thread_name"},     {"pid", 1}, {"tid", 1},
                    {"ts", 0},   {"args", {{"name", "step"}}}};
  EXPECT_EQ(events[2], thread);
  Json args = two_steps().descriptors[5].args;
  args["step"] = 5;
  const Json layer{{"ph", "X"}, {"name", "a"}, {"cat", "backward"}, {"pid", 1},
                   {"tid", 2},  {"ts", 7.0},   {"dur", 1.001},      {"args", args}};
  EXPECT_EQ(events[6 + 5], layer);
}

TEST(TraceTest, SurvivesSerialization) {
  const RankTrace before = two_steps();
  const RankTrace after = rank_trace_from(to_text(before));
  EXPECT_EQ(trace_events(after, true), trace_events(before, true));
  EXPECT_EQ(trace_events(rank_trace_from(to_text(RankTrace{})), true),
            trace_events(RankTrace{}, true));
}

TEST(CostTest, AveragesOverStepsAndRanks) {
  CostSum sum;
  sum.add(two_steps());
  RankTrace slower = two_steps();
  for (TraceEvent& event : slower.events) event.begin *= 3, event.duration *= 3;
  sum.add(slower);
  const StepCosts costs = sum.mean();
  EXPECT_EQ(costs.ranks, 2);
  EXPECT_EQ(costs.steps, 2);
  EXPECT_NEAR(costs.step, 24e-6, 1e-12);  // (12 + 36) / 2, the gap between the steps included
  ASSERT_EQ(costs.phases.size(), 2u);
  EXPECT_EQ(costs.phases[0].name, "forward");
  EXPECT_NEAR(costs.phases[0].seconds, 18e-6, 1e-12);
  EXPECT_NEAR(costs.unaccounted(), 2e-6, 1e-12);
  ASSERT_EQ(costs.layers.size(), 2u);
  EXPECT_EQ(costs.layers[0].name, "b");
  EXPECT_NEAR(costs.layers[0].forward, 12e-6, 1e-12);
  EXPECT_EQ(costs.layers[0].backward, 0);
  EXPECT_EQ(costs.layers[0].bytes, 3000);
  EXPECT_EQ(costs.layers[1].kind, "conv2d");
  EXPECT_NEAR(costs.layers[1].forward, 2e-6, 1e-12);
  EXPECT_NEAR(costs.layers[1].backward, 2e-6, 1e-12);
  EXPECT_EQ(costs.layers[1].flops, 8000);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

TEST(CostTest, TableShowsPercentagesOfTheStepAndOfThePeaks) {
  CostSum sum;
  sum.add(two_steps());
  // a: 8 kFLOP at 8 GFLOP/s are 1 us of its 2 us; b: 3000 bytes at 1 GB/s are 3 us of its 6 us.
  const std::string table = cost_table({sum.mean()}, {8e9, 1e9}, "net, FP32");
  EXPECT_THAT(table, HasSubstr("net, FP32: means of 2 steps on 1 rank\n"));
  EXPECT_THAT(table, ::testing::ContainsRegex("\nforward  +0.009 +75.0%\n"));
  EXPECT_THAT(table, ::testing::ContainsRegex("\nnot accounted for  +0.001 +8.3%\n"));
  EXPECT_THAT(table, ::testing::ContainsRegex("\nstep  +0.012 +100.0%\n"));
  EXPECT_THAT(table,
              ::testing::ContainsRegex("\nb  +relu +0.006 +0.000 +50.0% +0 +2.9 KiB +- +50.0%\n"));
  EXPECT_THAT(table, ::testing::ContainsRegex(
                         "\na  +conv2d +0.001 +0.001 +16.7% +8.00 k +200 B +50.0% +10.0%\n"));
  EXPECT_THAT(table, ::testing::ContainsRegex("\nall layers  +0.007 +0.001 +66.7% "));
}

TEST(CostTest, TableHasAPartForEachStage) {
  CostSum first, second;
  first.add(two_steps());
  RankTrace slower = two_steps();
  for (TraceEvent& event : slower.events) event.begin *= 3, event.duration *= 3;
  second.add(slower);
  const std::string table = cost_table({first.mean(), second.mean()}, {}, "net");
  const size_t middle = table.find("net: means of 2 steps on 1 rank of stage 1\n");
  ASSERT_NE(middle, std::string::npos) << table;
  const std::string top = table.substr(0, middle), bottom = table.substr(middle);
  EXPECT_TRUE(top.starts_with("net: means of 2 steps on 1 rank of stage 0\n")) << top;
  EXPECT_THAT(top, ::testing::ContainsRegex("\nforward  +0.009 +75.0%\n"));
  EXPECT_THAT(bottom, ::testing::ContainsRegex("\nforward  +0.027 +75.0%\n"));
}

TEST(CostTest, TableShowsTheTenSlowestLayersAndTheSumOfTheRest) {
  RankTrace trace = two_steps();
  for (int i = 0; i < 15; ++i) {
    std::string name("c");
    name += std::to_string(i);
    const Json args{{"kind", "tanh"}, {"FLOP", 0}, {"bytes", 0}};
    trace.descriptors.push_back({name, kForwardCategory, args});
    trace.events.push_back({kComputeTrack, 6 + i, 5, 0, 100 + i});
  }
  CostSum sum;
  sum.add(trace);
  const std::string table = cost_table({sum.mean()}, {}, "net");
  const std::vector<std::string> lines = lines_of(table);
  const auto head = std::ranges::find_if(
      lines, [](const std::string& line) { return line.starts_with("slowest layers"); });
  ASSERT_LT(head + 12, lines.end());
  EXPECT_THAT(head[1], ::testing::StartsWith("b "));
  EXPECT_THAT(head[2], ::testing::StartsWith("a "));
  EXPECT_THAT(head[3], ::testing::StartsWith("c14 "));
  EXPECT_THAT(head[10], ::testing::StartsWith("c7 "));
  EXPECT_THAT(head[11], ::testing::StartsWith("7 others "));
  EXPECT_THAT(head[12], ::testing::StartsWith("all layers "));
}

}  // namespace
}  // namespace trireme::train
