// The order and the ranges of the sums that a Bucketer launches. See bucketer_ranks_test for tests
// with several ranks.
#include "comm/bucketer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "tests/comm/forwarding_communicator.h"

namespace trireme::comm {
namespace {

// A world of two ranks in which the other rank has the same values.
class MirrorCommunicator final : public test::ForwardingCommunicator {
 public:
  MirrorCommunicator() { placement_.ranks = 2; }
  const Placement& placement() const override { return placement_; }
  bool concurrent() const override { return is_concurrent; }
  void all_reduce_sum(void* data, int64_t count, DType dtype, Stream& stream,
                      CallTag tag) override {
    stream.run(Task([this, data, count, dtype, tag] {
      if (failing) throw CommError("the other rank is lost");
      for (int64_t i = 0; i < count; ++i) {
        if (dtype == DType::kF32) static_cast<float*>(data)[i] *= 2;
        if (dtype == DType::kF64) static_cast<double*>(data)[i] *= 2;
      }
      sums.push_back({data, count, dtype, tag});
    }));
  }
  std::unique_ptr<Communicator> split(int, int) override {
    return std::make_unique<MirrorCommunicator>();
  }

  struct Sum {
    void* data;
    int64_t count;
    DType dtype;
    CallTag tag;
  };
  std::vector<Sum> sums;
  bool failing = false;
  bool is_concurrent = true;

 private:
  Placement placement_;
};

std::vector<int64_t> random_ends(std::mt19937& random) {
  std::vector<int64_t> ends;
  int64_t end = 0;
  const uint32_t parameters = random() % 40;
  for (uint32_t i = 0; i < parameters; ++i) ends.push_back(end += random() % 1000);
  return ends;
}

TEST(CutBucketsTest, CoversEachElementOnceWithFullBuckets) {
  std::mt19937 random(5);
  for (int i = 0; i < 500; ++i) {
    const std::vector<int64_t> ends = random_ends(random);
    BucketOptions options = {static_cast<int64_t>(random() % 3000),
                             static_cast<int64_t>(random() % 20000),
                             static_cast<int64_t>(random() % 9000)};
    if (i % 2) options.last_bytes = INT64_MAX;  // never splits the last bucket
    const auto buckets = cut_buckets(ends, DType::kF32, options);
    int64_t at = 0;
    for (size_t b = 0; b < buckets.size(); ++b) {
      ASSERT_EQ(buckets[b].begin, at);
      ASSERT_GT(buckets[b].end, at);
      at = buckets[b].end;
      ASSERT_NE(std::ranges::find(ends, at), ends.end());
      if (i % 2 == 0 && b + 2 >= buckets.size()) continue;
      const int64_t min_bytes = b == 0 ? options.first_bytes : options.bytes;
      const bool last = b + 1 == buckets.size();
      ASSERT_TRUE(last || (at - buckets[b].begin) * 4 >= min_bytes);
      // It ends as soon as it is full: without its last parameter, it would not be.
      for (int64_t end : ends) {
        const bool inside = end > buckets[b].begin && end < at;
        ASSERT_TRUE(!inside || (end - buckets[b].begin) * 4 < min_bytes);
      }
    }
    ASSERT_EQ(at, ends.empty() ? 0 : ends.back());
  }
}

TEST(CutBucketsTest, FirstBucketIsSmall) {
  const std::vector<int64_t> ends = {10, 20, 30, 40, 50, 60};
  const auto buckets = cut_buckets(ends, DType::kF32, {40, 100, 1000});
  EXPECT_EQ(buckets, (std::vector<Bucket>{{0, 10}, {10, 40}, {40, 60}}));
}

TEST(CutBucketsTest, LastBucketIsSmall) {
  const std::vector<int64_t> ends = {10, 20, 30, 40, 50, 60};
  const auto buckets = cut_buckets(ends, DType::kF32, {40, 1000, 70});
  EXPECT_EQ(buckets, (std::vector<Bucket>{{0, 10}, {10, 40}, {40, 60}}));
  // Less than an element:
  EXPECT_EQ(cut_buckets(ends, DType::kF32, {40, 1000, 1}),
            (std::vector<Bucket>{{0, 10}, {10, 50}, {50, 60}}));
}

class BucketerTest : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = create_cpu_device(1);
  std::unique_ptr<Stream> compute_ = device_->create_stream(StreamKind::kCompute);
  MirrorCommunicator communicator_;
};

TEST_F(BucketerTest, SumsEachBucketOnceInOrder) {
  std::mt19937 random(9);
  for (int i = 0; i < 100; ++i) {
    const auto ends = random_ends(random);
    const auto buckets = cut_buckets(ends, DType::kF32, {500, 3000});
    const int64_t elements = ends.empty() ? 0 : ends.back();
    std::vector<float> gradients(static_cast<size_t>(elements));
    Bucketer bucketer(communicator_, *device_, *compute_, gradients.data(), DType::kF32, buckets);
    for (int step = 0; step < 3; ++step) {
      communicator_.sums.clear();
      // An element is written just before it is declared final.
      for (int64_t final_end = 0; final_end < elements && random() % 10 != 0;) {
        const int64_t next = std::min<int64_t>(elements, final_end + random() % 700);
        for (; final_end < next; ++final_end) {
          gradients[static_cast<size_t>(final_end)] = static_cast<float>(final_end + step);
        }
        bucketer.advance(final_end);
        if (final_end == elements) break;
        if (random() % 2) bucketer.advance(final_end);
      }
      bucketer.finish();
      ASSERT_EQ(communicator_.sums.size(), buckets.size());
      for (size_t b = 0; b < buckets.size(); ++b) {
        ASSERT_EQ(communicator_.sums[b].data, gradients.data() + buckets[b].begin);
        ASSERT_EQ(communicator_.sums[b].count, buckets[b].end - buckets[b].begin);
        ASSERT_EQ(communicator_.sums[b].tag.bucket, static_cast<int>(b));
      }
    }
  }
}

TEST_F(BucketerTest, DoesNotTouchGradientsThatAreNotFinal) {
  std::vector<float> gradients(30, 1.0f);
  Bucketer bucketer(communicator_, *device_, *compute_, gradients.data(), DType::kF32,
                    {{0, 10}, {10, 20}, {20, 30}});
  bucketer.advance(19);
  std::fill(gradients.begin() + 10, gradients.end(), 5.0f);  // still being written
  bucketer.advance(20);
  bucketer.finish();
  for (size_t i = 0; i < 30; ++i) EXPECT_EQ(gradients[i], i < 10 ? 2.0f : 10.0f) << i;
}

TEST_F(BucketerTest, MeasuresTheStep) {
  std::vector<float> gradients(1 << 20, 1.0f);
  Bucketer bucketer(communicator_, *device_, *compute_, gradients.data(), DType::kF32,
                    {{0, 1 << 20}});
  EXPECT_EQ(bucketer.communication_seconds(), 0);
  bucketer.finish();
  EXPECT_GT(bucketer.communication_seconds(), 0);
}

TEST_F(BucketerTest, StoresTheTimesOfEachSlotSeparately) {
  std::vector<float> gradients(1 << 20, 1.0f);
  Bucketer bucketer(communicator_, *device_, *compute_, gradients.data(), DType::kF32,
                    {{0, 1 << 20}}, /*wire=*/{}, /*slots=*/2);
  bucketer.use_events(1);
  bucketer.finish();
  const double first = bucketer.communication_seconds(1);
  EXPECT_GT(first, 0);
  EXPECT_EQ(bucketer.communication_seconds(0), 0);
  bucketer.use_events(0);
  bucketer.finish();
  EXPECT_GT(bucketer.communication_seconds(0), 0);
  EXPECT_EQ(bucketer.communication_seconds(1), first);
  EXPECT_THROW(bucketer.use_events(2), std::out_of_range);
}

TEST_F(BucketerTest, SumsOnTheComputeStreamIfTheCommunicatorIsNotConcurrent) {
  communicator_.is_concurrent = false;
  std::vector<float> gradients(30, 1.0f);
  Bucketer bucketer(communicator_, *device_, *compute_, gradients.data(), DType::kF32,
                    {{0, 10}, {10, 30}});
  bucketer.advance(10);
  // The sum is done without waiting for another stream.
  EXPECT_EQ(gradients[0], 2.0f);
  EXPECT_EQ(gradients[10], 1.0f);
  bucketer.finish();
  EXPECT_EQ(gradients, std::vector<float>(30, 2.0f));
  EXPECT_GT(bucketer.communication_seconds(), 0);
}

// Converts between float and double, in place of half precision.
template <class From, class To>
Convert conversion(std::vector<int64_t>& counts) {
  return [&counts](const void* from, void* to, int64_t elements, Stream& stream) {
    counts.push_back(elements);
    stream.run(Task([=] {
      for (int64_t i = 0; i < elements; ++i) {
        static_cast<To*>(to)[i] = static_cast<To>(static_cast<const From*>(from)[i]);
      }
    }));
  };
}

TEST_F(BucketerTest, CastsAllButTheFirstBucketToTheWireDtype) {
  std::vector<int64_t> to_wire, from_wire;
  const WireFormat wire = {DType::kF64, conversion<float, double>(to_wire),
                           conversion<double, float>(from_wire)};
  std::vector<float> gradients(60);
  Bucketer bucketer(communicator_, *device_, *compute_, gradients.data(), DType::kF32,
                    {{0, 10}, {10, 40}, {40, 60}}, wire);
  for (int step = 0; step < 3; ++step) {
    communicator_.sums.clear();
    for (size_t i = 0; i < 60; ++i) gradients[i] = static_cast<float>(i + 1);
    bucketer.advance(45);
    for (size_t i = 50; i < 60; ++i) gradients[i] = 7;  // still being written
    bucketer.finish();
    for (size_t i = 0; i < 60; ++i) {
      ASSERT_EQ(gradients[i], i < 50 ? 2 * static_cast<float>(i + 1) : 14.0f) << i;
    }
    ASSERT_EQ(communicator_.sums.size(), 3u);
    EXPECT_EQ(communicator_.sums[0].data, gradients.data());
    EXPECT_EQ(communicator_.sums[0].dtype, DType::kF32);
    EXPECT_EQ(communicator_.sums[1].count, 30);
    EXPECT_EQ(communicator_.sums[1].dtype, DType::kF64);
    EXPECT_EQ(communicator_.sums[2].dtype, DType::kF64);
    // Both use the start of the staging buffer.
    EXPECT_EQ(communicator_.sums[1].data, communicator_.sums[2].data);
  }
  EXPECT_EQ(to_wire, (std::vector<int64_t>{30, 20, 30, 20, 30, 20}));
  EXPECT_EQ(from_wire, to_wire);
}

TEST_F(BucketerTest, RefusesAWireDtypeThatCannotBeSummed) {
  std::vector<int64_t> counts;
  const Convert copy = conversion<float, float>(counts);
  std::vector<float> gradients(10);
  EXPECT_THROW(Bucketer(communicator_, *device_, *compute_, gradients.data(), DType::kF32,
                        {{0, 5}, {5, 10}}, {DType::kU8, copy, copy}),
               CommError);
}

TEST_F(BucketerTest, FinishThrowsIfASumFailed) {
  std::vector<float> gradients(10);
  Bucketer bucketer(communicator_, *device_, *compute_, gradients.data(), DType::kF32, {{0, 10}});
  communicator_.failing = true;
  bucketer.advance(10);
  EXPECT_THROW(bucketer.finish(), CommError);
}

TEST_F(BucketerTest, DoesNothingInAWorldOfOne) {
  const auto alone = create_local_communicator();
  std::vector<float> gradients(10, 3.0f);
  Bucketer bucketer(*alone, *device_, *compute_, gradients.data(), DType::kF32, {{0, 5}, {5, 10}});
  bucketer.advance(7);
  bucketer.finish();
  EXPECT_EQ(gradients, std::vector<float>(10, 3.0f));
  EXPECT_EQ(bucketer.communication_seconds(), 0);
  EXPECT_EQ(bucketer.buckets().size(), 2u);
  bucketer.use_events(1);  // has no effect
}

}  // namespace
}  // namespace trireme::comm
