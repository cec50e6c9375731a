#include "data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "data/sampler.h"

namespace {
std::atomic<int64_t> g_allocations{0};  // in the entire program
}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  ++g_allocations;
  if (void* memory = std::malloc(std::max<size_t>(bytes, 1))) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace trireme::data {
namespace {

using ::testing::ElementsAre;
using ::testing::Values;

// Sample i consists of the input {i + 1, -(i + 1)} and the target i + 1. Reading takes irregular
// time and can fail.
class Counting final : public Dataset {
 public:
  explicit Counting(int64_t size, int64_t bad = -1) : size_(size), bad_(bad) {
    spec_.input = {DType::kI64, Shape{2}, {}};
    spec_.target = {DType::kI32, Shape{}, {}};
  }
  const SampleSpec& spec() const override { return spec_; }
  int64_t size() const override { return size_; }
  void read(SampleId id, std::byte* input, std::byte* target) const override {
    const int64_t index = id.index;
    if (index == bad_) throw DataError("numbers: record " + std::to_string(index), "is bad");
    if (slow_) std::this_thread::sleep_for(std::chrono::microseconds(index * 7 % 50));
    const int64_t twice[2] = {index + 1, -index - 1};
    const auto label = static_cast<int32_t>(index + 1);
    std::memcpy(input, twice, sizeof twice);
    std::memcpy(target, &label, sizeof label);
  }
  std::string description() const override { return "numbers"; }
  void slow() { slow_ = true; }

 private:
  SampleSpec spec_;
  int64_t size_;
  int64_t bad_;
  bool slow_ = false;
};

LoaderOptions options(int64_t global, int threads, int rank = 0, int ranks = 1) {
  LoaderOptions out;
  out.seed = 11;
  out.global_batch = global;
  out.capacity = (global + ranks - 1) / ranks + 1;
  out.rank = rank;
  out.ranks = ranks;
  out.threads = threads;
  return out;
}

class LoaderTest : public ::testing::Test {
 protected:
  // Returns the samples of a batch. Checks that inputs and targets match, and that the memory
  // beyond its rows is zero.
  static std::vector<int64_t> rows(const Batch& batch, int64_t capacity) {
    std::vector<int64_t> out;
    for (int64_t row = 0; row < capacity; ++row) {
      int64_t twice[2];
      int32_t label = 0;
      std::memcpy(twice, batch.inputs + row * 16, 16);
      std::memcpy(&label, batch.targets + row * 4, 4);
      EXPECT_EQ(twice[0], -twice[1]);
      EXPECT_EQ(twice[0], label);
      EXPECT_EQ(row < batch.rows, label != 0) << "row " << row << " of " << batch.rows;
      if (row >= batch.rows) continue;
      out.push_back(label - 1);
      EXPECT_EQ(batch.samples[row], label - 1);
    }
    return out;
  }
  std::unique_ptr<Device> device = create_cpu_device(1);
};

// size, global batch, ranks, threads, depth
class LoaderSweep : public LoaderTest,
                    public ::testing::WithParamInterface<std::tuple<int, int, int, int, int>> {};

TEST_P(LoaderSweep, RanksReadTheOrderOfTheEpochTogether) {
  const auto [size, global, ranks, threads, depth] = GetParam();
  Counting dataset(size);
  dataset.slow();
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int rank = 0; rank < ranks; ++rank) {
    LoaderOptions o = options(global, threads, rank, ranks);
    o.depth = depth;
    loaders.push_back(std::make_unique<Loader>(dataset, *device, o));
    loaders.back()->start(0, 0);
  }
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    const Permutation permutation(11, static_cast<uint64_t>(epoch), size);
    const int64_t batches = loaders[0]->batches_per_epoch();
    ASSERT_EQ(batches, (size + global - 1) / global);
    int64_t position = 0;
    for (int64_t k = 0; k < batches; ++k) {
      std::vector<int64_t> together;
      for (int rank = 0; rank < ranks; ++rank) {
        const Batch& batch = loaders[static_cast<size_t>(rank)]->next();
        ASSERT_EQ(batch.epoch, epoch);
        ASSERT_EQ(batch.position, k * global);
        ASSERT_EQ(batch.global_rows, std::min<int64_t>(global, size - k * global));
        ASSERT_EQ(batch.last_of_epoch, k == batches - 1);
        ASSERT_EQ(batch.first_row, static_cast<int64_t>(together.size()));
        for (const int64_t sample : rows(batch, (global + ranks - 1) / ranks + 1))
          together.push_back(sample);
      }
      std::vector<int64_t> expected;
      for (; position < std::min<int64_t>((k + 1) * global, size); ++position) {
        expected.push_back(permutation(position));
      }
      ASSERT_EQ(together, expected) << "epoch " << epoch << " batch " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(RanksAndThreads, LoaderSweep,
                         ::testing::Combine(Values(50), Values(8), Values(1, 2, 3, 4),
                                            Values(0, 1, 2, 5), Values(4)));
INSTANTIATE_TEST_SUITE_P(Depths, LoaderSweep,
                         ::testing::Combine(Values(50), Values(7), Values(2), Values(1, 3),
                                            Values(1, 2, 9)));
INSTANTIATE_TEST_SUITE_P(Extremes, LoaderSweep,
                         Values(std::tuple{1, 1, 1, 2, 4}, std::tuple{1, 1, 4, 1, 2},
                                std::tuple{5, 100, 3, 2, 4}, std::tuple{9, 3, 8, 2, 4},
                                std::tuple{64, 64, 2, 1, 4}));

TEST_F(LoaderTest, WithoutShuffleSamplesAreInOrder) {
  const Counting dataset(7);
  LoaderOptions o = options(4, 1);
  o.order.shuffle = false;
  Loader loader(dataset, *device, o);
  loader.start(5, 0);
  EXPECT_THAT(rows(loader.next(), 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(rows(loader.next(), 4), ElementsAre(4, 5, 6));
  EXPECT_THAT(rows(loader.next(), 4), ElementsAre(0, 1, 2, 3));
}

TEST_F(LoaderTest, ResumedBatchesMatchUninterruptedOnes) {
  const Counting dataset(50);
  Loader uninterrupted(dataset, *device, options(8, 2));
  Loader resumed(dataset, *device, options(8, 3));
  for (int64_t skipped = 0; skipped < 15; ++skipped) {
    uninterrupted.start(0, 0);
    for (int64_t i = 0; i < skipped; ++i) uninterrupted.next();
    resumed.start(skipped / 7, skipped % 7 * 8);
    for (int i = 0; i < 10; ++i) {
      const Batch& a = uninterrupted.next();
      const Batch& b = resumed.next();
      ASSERT_EQ(a.epoch, b.epoch);
      ASSERT_EQ(a.position, b.position);
      ASSERT_EQ(rows(a, 9), rows(b, 9));
    }
  }
}

TEST_F(LoaderTest, StartsAtAnyPosition) {
  const Counting dataset(20);
  LoaderOptions o = options(8, 1);
  o.order.shuffle = false;
  Loader loader(dataset, *device, o);
  loader.start(0, 3);  // as after a run with another batch size
  EXPECT_THAT(rows(loader.next(), 8), ElementsAre(3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_THAT(rows(loader.next(), 8), ElementsAre(11, 12, 13, 14, 15, 16, 17, 18));
  const Batch& last = loader.next();
  EXPECT_TRUE(last.last_of_epoch);
  EXPECT_THAT(rows(last, 8), ElementsAre(19));
  EXPECT_EQ(loader.next().epoch, 1);
  loader.start(4, 20);  // epoch 4 is finished
  EXPECT_EQ(loader.next().epoch, 5);
}

TEST_F(LoaderTest, ThrowsErrorsWithTheirBatchUntilRestarted) {
  for (const int threads : {0, 1, 3}) {
    const Counting dataset(40, /*bad=*/17);
    LoaderOptions o = options(8, threads);
    o.order.shuffle = false;
    Loader loader(dataset, *device, o);
    loader.start(0, 0);
    EXPECT_THAT(rows(loader.next(), 8), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    EXPECT_EQ(loader.next().position, 8);
    for (int again = 0; again < 2; ++again) {
      try {
        loader.next();
        FAIL() << "no exception";
      } catch (const DataError& error) {
        EXPECT_STREQ(error.what(), "numbers: record 17: is bad");
      }
    }
    loader.start(0, 24);
    EXPECT_EQ(rows(loader.next(), 8).front(), 24);
  }
}

// Every `every`-th sample cannot be read, and on_read can throw, block or end the thread.
class Damaged final : public Dataset {
 public:
  explicit Damaged(int64_t size) : numbers_(size) {}
  const SampleSpec& spec() const override { return numbers_.spec(); }
  int64_t size() const override { return numbers_.size(); }
  void read(SampleId id, std::byte* input, std::byte* target) const override {
    const int64_t index = id.index;
    if (on_read) on_read(index);
    if (every > 0 && index % every == 0) {
      input[0] = std::byte{1};  // partially written
      throw DataError("numbers: record " + std::to_string(index), "is bad");
    }
    numbers_.read(id, input, target);
  }
  std::string description() const override { return "damaged numbers"; }
  std::string where(int64_t index) const override { return "shard: " + std::to_string(index); }
  BadRecords bad_records() const override { return {bad_when_opened, {}}; }

  std::function<void(int64_t)> on_read;
  int64_t every = 0;
  int64_t bad_when_opened = 0;

 private:
  Counting numbers_;
};

LoaderOptions plain(int threads) {
  LoaderOptions o = options(8, threads);
  o.order.shuffle = false;
  return o;
}

TEST_F(LoaderTest, SkipsBadSamplesAndCountsThemOnce) {
  for (const int threads : {0, 1, 3}) {
    Damaged dataset(20);
    dataset.every = 6;  // 0, 6, 12, 18
    LoaderOptions o = plain(threads);
    o.max_bad_records = 4;
    Loader loader(dataset, *device, o);
    loader.start(0, 0);
    for (int epoch = 0; epoch < 3; ++epoch) {
      const Batch& first = loader.next();
      EXPECT_EQ(first.global_rows, 8);
      EXPECT_THAT(rows(first, 9), ElementsAre(1, 2, 3, 4, 5, 7));
      EXPECT_THAT(rows(loader.next(), 9), ElementsAre(8, 9, 10, 11, 13, 14, 15));
      EXPECT_THAT(rows(loader.next(), 9), ElementsAre(16, 17, 19));
    }
    EXPECT_EQ(loader.bad_records().count, 4) << threads;
    ASSERT_EQ(loader.bad_records().first.size(), 4u);
  }
}

// What is random about a row depends on its place, so skipping another one must not change it.
TEST_F(LoaderTest, RowsKeepTheirPlacesWhenOthersAreSkipped) {
  Damaged dataset(20);
  dataset.every = 6;
  LoaderOptions o = plain(0);
  o.max_bad_records = 4;
  o.rank = 1;
  o.ranks = 2;
  Loader loader(dataset, *device, o);
  loader.start(0, 8);
  const Batch& batch = loader.next();  // rows 4 to 7 of samples 8 to 15, without sample 12
  ASSERT_EQ(batch.rows, 3);
  EXPECT_EQ(batch.first_row, 4);
  EXPECT_THAT(std::vector(batch.places, batch.places + 3), ElementsAre(5, 6, 7));
  o.rank = 0;
  Loader other(dataset, *device, o);
  other.start(0, 8);
  EXPECT_EQ(other.next().places, nullptr) << "nothing is skipped";
}

// max_bad_records is for one epoch: a network file system that fails now and then does not end a
// long run.
TEST_F(LoaderTest, CountsBadSamplesAnewInEachEpoch) {
  Damaged dataset(20);
  int64_t reads = 0;
  dataset.on_read = [&](int64_t index) {
    const int64_t epoch = reads++ / 20;
    if (index % 7 == epoch % 7)
      throw DataError("numbers: record " + std::to_string(index), "is bad");
  };
  LoaderOptions o = plain(0);
  o.max_bad_records = 3;
  Loader loader(dataset, *device, o);
  loader.start(0, 0);
  for (int batch = 0; batch < 7 * 3; ++batch) loader.next();
  EXPECT_EQ(loader.bad_records().count, 20);
  dataset.every = 5;  // four samples of each epoch
  loader.start(7, 0);
  loader.next();
  EXPECT_THROW(for (int batch = 0; batch < 2; ++batch) loader.next(), DataError);
}

TEST_F(LoaderTest, ThrowsAboveTheLimitOfBadSamples) {
  for (const int threads : {0, 1}) {
    Damaged dataset(20);
    dataset.every = 6;
    dataset.bad_when_opened = 2;
    LoaderOptions o = plain(threads);
    o.max_bad_records = 4;
    Loader loader(dataset, *device, o);
    loader.start(0, 0);
    loader.next();  // without 0 and 6
    try {
      loader.next();
      FAIL() << "no exception";
    } catch (const DataError& error) {
      EXPECT_STREQ(error.what(),
                   "damaged numbers: 5 bad records, more than data.max_bad_records, 4; the first: "
                   "numbers: record 0: is bad");
    }
    loader.start(0, 0);
    EXPECT_THROW(loader.next(), DataError) << "the count is not reset";
  }
}

TEST_F(LoaderTest, OtherErrorsNameTheSampleAndAreNotSkipped) {
  for (const int threads : {0, 2}) {
    Damaged dataset(20);
    bool standard = true;
    dataset.on_read = [&](int64_t index) {
      if (index != 9) return;
      if (standard) throw std::runtime_error("the disk is on fire");
      throw 42;
    };
    LoaderOptions o = plain(threads);
    o.max_bad_records = 100;
    Loader loader(dataset, *device, o);
    const auto message = [&] {
      loader.start(1, 8);
      try {
        loader.next();
      } catch (const DataError& error) {
        return std::string(error.what());
      }
      return std::string("no exception");
    };
    EXPECT_EQ(message(), "sample 9 of epoch 2 (shard: 9): could not be read: the disk is on fire");
    standard = false;
    EXPECT_EQ(message(),
              "sample 9 of epoch 2 (shard: 9): could not be read: exception of unknown type");
  }
}

TEST_F(LoaderTest, ThrowsWhenAWorkerThreadEnds) {
  for (const int threads : {1, 2}) {
    Damaged dataset(40);
    dataset.on_read = [](int64_t index) {
      if (index == 9) pthread_exit(nullptr);
    };
    Loader loader(dataset, *device, plain(threads));
    loader.start(0, 0);
    loader.next();
    for (int again = 0; again < 2; ++again) {
      try {
        loader.next();
        FAIL() << "no exception";
      } catch (const DataError& error) {
        EXPECT_STREQ(error.what(),
                     "sample 9 of epoch 1 (shard: 9): the thread that was reading it has ended");
      }
    }
    loader.start(0, 16);
    if (threads == 1) {
      EXPECT_THROW(loader.next(), Error) << "no worker remains";
    } else {
      EXPECT_EQ(loader.next().position, 16) << "the other worker continues";
    }
  }
}

TEST_F(LoaderTest, ReportsTheSampleThatNextWaitsFor) {
  Damaged dataset(40);
  std::atomic<bool> released = false;
  dataset.on_read = [&](int64_t index) {
    while (index == 11 && !released) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  std::string message;
  LoaderOptions o = plain(1);
  o.progress = [&](std::string_view text) {
    message = text;
    released = true;
  };
  Loader loader(dataset, *device, o);
  loader.start(2, 0);
  loader.next();
  EXPECT_EQ(message, "");
  EXPECT_EQ(loader.next().position, 8);
  EXPECT_TRUE(
      message.starts_with("sample 11 of epoch 3 (shard: 11), which worker 0 has been reading"))
      << message;
}

TEST_F(LoaderTest, WithoutWorkersReportsEachSampleBeforeReadingIt) {
  Damaged dataset(40);
  std::vector<std::string> messages;
  LoaderOptions o = plain(0);
  o.progress = [&](std::string_view text) { messages.emplace_back(text); };
  dataset.on_read = [&](int64_t index) {
    ASSERT_EQ(messages.back(), "sample " + std::to_string(index) +
                                   " of epoch 1 (shard: " + std::to_string(index) + ")");
  };
  Loader loader(dataset, *device, o);
  loader.start(0, 0);
  loader.next();
  EXPECT_EQ(messages.size(), 8u);
}

TEST_F(LoaderTest, ReadingsReturnsWhatWorkersAreReading) {
  Damaged dataset(40);
  std::atomic<bool> released = false;
  dataset.on_read = [&](int64_t index) {
    while (index == 3 && !released) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  Loader loader(dataset, *device, plain(1));
  EXPECT_TRUE(loader.readings().empty());
  loader.start(0, 0);
  std::vector<Reading> readings;
  while (readings.empty() || readings[0].sample != 3) readings = loader.readings();
  EXPECT_EQ(readings.size(), 1u);
  EXPECT_EQ(readings[0].worker, 0);
  EXPECT_EQ(readings[0].batch, 0);
  EXPECT_EQ(readings[0].where, "shard: 3");
  released = true;
  loader.next();
}

// Waits for at least 5 seconds, so that a test fails instead of hanging.
template <class Condition>
bool comes_true(Condition condition) {
  for (int tries = 0; tries < 5000 && !condition(); ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return condition();
}

TEST_F(LoaderTest, ThreadsShareTheRowsOfABatch) {
  Damaged dataset(40);
  std::atomic<int> inside = 0;
  std::atomic<int> alone = 0;
  dataset.on_read = [&](int64_t index) {
    if (index % 2 != 0) return;  // rows of a unit are read one after another
    ++inside;
    if (!comes_true([&] { return inside >= 4; })) ++alone;
  };
  LoaderOptions o = plain(4);
  o.depth = 1;  // workers cannot load another batch
  Loader loader(dataset, *device, o);
  loader.start(0, 0);
  EXPECT_THAT(rows(loader.next(), 9), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(alone, 0);
}

TEST_F(LoaderTest, ReportsTheFailureOfTheFirstRowOfABatch) {
  Damaged dataset(40);
  std::atomic<bool> later_failed = false;
  dataset.on_read = [&](int64_t index) {
    if (index == 2 && comes_true([&] { return later_failed.load(); })) {
      throw DataError("numbers: record 2", "is bad");
    }
    if (index == 6) {
      later_failed = true;
      throw DataError("numbers: record 6", "is bad");
    }
  };
  Loader loader(dataset, *device, plain(4));
  loader.start(0, 0);
  try {
    loader.next();
    FAIL() << "no exception";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "numbers: record 2: is bad");
  }
}

TEST_F(LoaderTest, CountsBadSamplesWhenTheirBatchIsReturned) {
  Damaged dataset(80);
  dataset.every = 5;
  std::atomic<int64_t> furthest = 0;
  dataset.on_read = [&](int64_t index) { furthest = std::max<int64_t>(furthest, index); };
  LoaderOptions o = plain(1);
  o.max_bad_records = 3;  // fewer than are read ahead
  Loader loader(dataset, *device, o);
  loader.start(0, 0);
  ASSERT_TRUE(comes_true([&] { return furthest == 31; }));
  EXPECT_THAT(rows(loader.next(), 9), ElementsAre(1, 2, 3, 4, 6, 7));
  EXPECT_EQ(loader.bad_records().count, 2);
  EXPECT_THAT(loader.bad_records().first,
              ElementsAre("numbers: record 0: is bad", "numbers: record 5: is bad"));
  EXPECT_THROW((loader.next(), loader.next()), DataError);
}

TEST_F(LoaderTest, ReadsAheadNoFurtherThanTheRingHolds) {
  for (const int threads : {1, 3}) {
    Damaged dataset(400);
    std::atomic<int64_t> reads = 0;
    dataset.on_read = [&](int64_t) { ++reads; };
    LoaderOptions o = plain(threads);
    o.depth = 3;
    Loader loader(dataset, *device, o);
    loader.start(0, 0);
    for (int64_t batch = 0; batch < 6; ++batch) {
      loader.next();
      EXPECT_TRUE(comes_true([&] { return reads == (batch + 3) * 8; })) << reads;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      EXPECT_EQ(reads, (batch + 3) * 8);
    }
  }
}

TEST_F(LoaderTest, ThreadsHaveNames) {
  Damaged dataset(40);
  std::atomic<int> named = 0;
  dataset.on_read = [&](int64_t) {
    char name[16];
    pthread_getname_np(pthread_self(), name, sizeof name);
    if (std::string_view(name).starts_with("data-")) ++named;
  };
  Loader loader(dataset, *device, plain(2));
  loader.start(0, 0);
  loader.next();
  EXPECT_GE(named, 8);
}

TEST_F(LoaderTest, CanBeDestroyedOrRestartedAtAnyTime) {
  Counting dataset(100);
  dataset.slow();
  for (int i = 0; i < 60; ++i) {
    Loader loader(dataset, *device, options(10, 1 + i % 4));
    if (i % 5 == 0) continue;  // never started
    loader.start(0, i);
    for (int k = 0; k < i % 7; ++k) loader.next();
    if (i % 3 == 0) loader.start(1, 0);
  }
}

TEST_F(LoaderTest, ABatchStaysValidUntilTheNextCall) {
  const Counting dataset(64);
  for (const int depth : {1, 2, 4}) {
    LoaderOptions o = options(4, 2);
    o.depth = depth;
    Loader loader(dataset, *device, o);
    loader.start(0, 0);
    for (int i = 0; i < 20; ++i) {
      const Batch& batch = loader.next();
      const std::vector<int64_t> first = rows(batch, 5);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ASSERT_EQ(rows(batch, 5), first);
    }
  }
}

TEST_F(LoaderTest, DoesNotAllocateOnceStarted) {
  const Counting dataset(100);
  for (const int threads : {0, 1, 2}) {
    Loader loader(dataset, *device, options(8, threads));
    loader.start(0, 0);
    for (int i = 0; i < 20; ++i) loader.next();
    const int64_t before = g_allocations;
    for (int i = 0; i < 200; ++i) loader.next();
    EXPECT_EQ(g_allocations, before) << threads << " threads";
  }
}

TEST_F(LoaderTest, MeasuresWaitingTime) {
  Counting dataset(100);
  dataset.slow();
  for (const int threads : {0, 1}) {
    Loader loader(dataset, *device, options(50, threads));
    loader.start(0, 0);
    loader.next();
    EXPECT_GT(loader.wait_seconds(), 0) << threads << " threads";
  }
}

TEST_F(LoaderTest, ThrowsForInvalidOptionsAndCalls) {
  const Counting dataset(10);
  const auto create = [&](LoaderOptions o) { Loader(dataset, *device, o); };
  LoaderOptions o = options(8, 1);
  o.capacity = 7;
  EXPECT_THROW(create(o), Error);
  o = options(8, 1);
  o.rank = 1;
  EXPECT_THROW(create(o), Error);
  o = options(0, 1);
  EXPECT_THROW(create(o), Error);
  EXPECT_THROW(Loader(Counting(0), *device, options(8, 1)), Error);
  Loader loader(dataset, *device, options(8, 1));
  EXPECT_THROW(loader.next(), Error);
  EXPECT_THROW(loader.start(0, 11), Error);
  EXPECT_THROW(loader.start(0, -1), Error);
}

}  // namespace
}  // namespace trireme::data
