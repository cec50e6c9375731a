// The bytes of event files and the values of histograms. tensorboard_test.py reads event files with
// TensorBoard's own reader.
#include "trainer/report/sinks/event_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "temporary_folder.h"
#include "trainer/report/sinks/histogram.h"
#include "trainer/report/sinks/tensorboard.h"

namespace trireme::train {
namespace {

// Values from RFC 3720, B.4, and the usual check value.
TEST(Crc32c, MatchesKnownValues) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  std::string ascending(32, '\0');
  std::iota(ascending.begin(), ascending.end(), '\0');
  EXPECT_EQ(crc32c(ascending), 0x46DD794EU);
}

template <class T>
T number_at(const std::string& bytes, size_t at) {
  T number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

// The mask of the TFRecord format: rotated right by 15 bits, plus a constant.
uint32_t masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U; }

TEST(EventFile, WritesRecordsInTfRecordFormat) {
  std::string framed;
  append_record("123456789", framed);
  append_record("", framed);
  ASSERT_EQ(framed.size(), 12u + 9 + 4 + 12 + 4);
  EXPECT_EQ(number_at<uint64_t>(framed, 0), 9U);
  EXPECT_EQ(number_at<uint32_t>(framed, 8), masked(crc32c(framed.substr(0, 8))));
  EXPECT_EQ(framed.substr(12, 9), "123456789");
  EXPECT_EQ(number_at<uint32_t>(framed, 21), masked(0xE3069283U));
  EXPECT_EQ(number_at<uint64_t>(framed, 25), 0U);
  EXPECT_EQ(number_at<uint32_t>(framed, 37), masked(0));
}

TEST(EventFile, NamesOfNewFilesSortAfterEarlierOnes) {
  const TemporaryFolder folder;
  for (int i = 0; i < 3; ++i) {
    EventFile file(folder.path());
    tensorboard::Event event;
    event.set_step(i);
    file.add(event);
    file.flush();
  }
  std::vector<std::filesystem::path> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    names.push_back(entry.path());
  }
  std::sort(names.begin(), names.end());
  ASSERT_EQ(names.size(), 3u) << "files of the same second do not overwrite each other";
  for (int i = 0; i < 3; ++i) {
    const std::string bytes = slurp(names[static_cast<size_t>(i)]);
    tensorboard::Event event;
    ASSERT_TRUE(event.ParseFromString(bytes.substr(12, number_at<uint64_t>(bytes, 0))));
    EXPECT_EQ(event.step(), i);
  }
}

// Returns the steps of the events with this tag in the only event file.
std::vector<int64_t> steps_of(const std::filesystem::path& folder, const std::string& tag) {
  const std::string bytes = slurp(std::filesystem::directory_iterator(folder)->path());
  std::vector<int64_t> steps;
  for (size_t at = 0; at < bytes.size();) {
    const auto length = number_at<uint64_t>(bytes, at);
    tensorboard::Event event;
    EXPECT_TRUE(event.ParseFromString(bytes.substr(at + 12, length)));
    for (const auto& value : event.summary().value()) {
      if (value.tag() == tag) steps.push_back(event.step());
    }
    at += 12 + length + 4;
  }
  return steps;
}

// metrics.tensorboard: bursts of 1000 steps, and the latest before an evaluation and the end. The
// latest step was also written before every other record.
TEST(TensorBoardSink, WritesAsManyStepsAsItPromises) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "tensorboard";
  TensorBoardSink sink(path, 0);
  sink.open();
  const std::chrono::system_clock::time_point now(std::chrono::hours(500'000));
  const auto write = [&](auto record, int64_t step) {
    record.step = step;
    sink.write({now, std::move(record)});
  };
  const auto steps = [&](int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) write(StepRecord(), step);
  };
  steps(1, 1010);
  sink.write({now, RanksRecord{.step = 1010, .lag_ms = {0, 1}, .stage_utilization = {}}});
  write(HistogramsRecord(), 1010);
  steps(1011, 1020);
  EvaluationRecord evaluation;
  evaluation.metrics.loss = 1;
  write(evaluation, 1020);
  steps(1021, 1030);
  EndRecord end;
  end.status = "stopped";
  write(end, 1030);
  sink.flush();
  std::vector<int64_t> expected(1000);
  std::iota(expected.begin(), expected.end(), 1);
  expected.insert(expected.end(), {1020, 1030});
  EXPECT_EQ(steps_of(path, "train/loss"), expected);
  EXPECT_EQ(steps_of(path, "eval/loss"), std::vector<int64_t>{1020});
}

int64_t total(const Histogram& histogram) {
  return std::accumulate(histogram.counts.begin(), histogram.counts.end(), int64_t{0});
}

TEST(Histogram, CountsEveryValueInItsBucket) {
  const std::vector<float> values = {-3, -1, -1e-20F, 0, 1e-20F, 0.5F, 1, 1, 1.0625F, 7.9F, 1000};
  const Histogram h = histogram_of(values);
  EXPECT_EQ(h.count, 11);
  EXPECT_EQ(total(h), 11);
  EXPECT_EQ(h.min, -3);
  EXPECT_EQ(h.max, 1000);
  EXPECT_NEAR(h.sum, 1007.4625, 1e-4);
  ASSERT_EQ(h.limits.size(), h.counts.size());
  EXPECT_TRUE(std::is_sorted(h.limits.begin(), h.limits.end()));
  EXPECT_GT(h.counts.front(), 0);
  EXPECT_GT(h.counts.back(), 0);
  // [1, 1.125) contains both ones and 1.0625.
  const auto at = std::find(h.limits.begin(), h.limits.end(), 1.125);
  ASSERT_NE(at, h.limits.end());
  EXPECT_EQ(h.counts[static_cast<size_t>(at - h.limits.begin())], 3);
  // Values near zero have one bucket per sign.
  const auto zero = std::find(h.limits.begin(), h.limits.end(), 0.0);
  ASSERT_NE(zero, h.limits.end());
  EXPECT_EQ(h.counts[static_cast<size_t>(zero - h.limits.begin())], 1);
  EXPECT_EQ(h.counts[static_cast<size_t>(zero - h.limits.begin()) + 1], 2);
}

TEST(Histogram, CountsTheLargestValuesAndIgnoresNonFiniteOnes) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float largest = std::numeric_limits<float>::max();
  const Histogram h = histogram_of(std::vector{NAN, infinity, -infinity, largest, -largest});
  EXPECT_EQ(h.count, 2);
  EXPECT_EQ(total(h), 2);
  EXPECT_TRUE(std::isfinite(h.sum_of_squares));
  EXPECT_EQ(histogram_of(std::vector{NAN}).count, 0);
  EXPECT_TRUE(histogram_of({}).limits.empty());
}

TEST(Histogram, HasOneBucketForAConstant) {
  const Histogram h = histogram_of(std::vector<float>(100, 0.25F));
  EXPECT_EQ(h.counts, std::vector<int64_t>{100});
  EXPECT_EQ(h.min, h.max);
}

}  // namespace
}  // namespace trireme::train
