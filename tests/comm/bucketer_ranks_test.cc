#include <random>
#include <thread>

#include "comm/bucketer.h"
#include "comm/mpi/half.h"
#include "tests/comm/ranks.h"

namespace trireme::comm {
namespace {

using test::Rank;
using test::Setup;
using test::Way;

class BucketerRanksTest : public testing::TestWithParam<test::Setup> {
 protected:
  const std::vector<int64_t> ends_ = {100, 5000, 5001, 45'000, 90'007, 90'010, 200'003};
  test::Rank self_{GetParam()};
  Device& device_ = *self_.device;
  Communicator& communicator_ = *self_.communicator;
  int rank_ = communicator_.rank();
  int ranks_ = communicator_.size();
  Buffer gradients_ = communicator_.allocate(bytes_of(ends_.back(), DType::kF32));
  Buffer computed_ = device_.allocate_host(gradients_.bytes());  // the result of the backward pass

  std::vector<Bucket> buckets() const { return cut_buckets(ends_, DType::kF32, {4000, 150'000}); }

  void choose(int step) {
    for (int64_t i = 0; i < ends_.back(); ++i) {
      computed_.as<float>()[i] = static_cast<float>((rank_ + 1) * (i % 1000 + step));
    }
  }
  // Simulates the backward pass: writes the gradients one after the other.
  template <class Pause>
  void compute(Bucketer& bucketer, Pause pause) {
    int64_t begin = 0;
    for (int64_t end : ends_) {
      pause();
      device_.copy(gradients_.as<float>() + begin, computed_.as<float>() + begin,
                   bytes_of(end - begin, DType::kF32), *self_.stream);
      bucketer.advance(begin = end);
    }
    bucketer.finish();
  }
  void expect_sums(int step) {
    const auto sums = self_.read<float>(gradients_.data(), ends_.back());
    for (int64_t i = 0; i < ends_.back(); ++i) {
      const auto expected = static_cast<float>(ranks_ * (ranks_ + 1) / 2 * (i % 1000 + step));
      ASSERT_EQ(sums[static_cast<size_t>(i)], expected) << "step " << step << ", element " << i;
    }
  }
};

// Each rank pauses at different times.
TEST_P(BucketerRanksTest, SumsWhileGradientsAreWritten) {
  Bucketer bucketer(communicator_, device_, *self_.stream, gradients_.data(), DType::kF32,
                    buckets());
  ASSERT_GE(bucketer.buckets().size(), 3u);
  std::mt19937 random(static_cast<uint32_t>(rank_));
  for (int step = 0; step < 60; ++step) {
    choose(step);
    compute(bucketer, [&] {
      if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 800));
    });
    ASSERT_NO_FATAL_FAILURE(expect_sums(step));
  }
}

// As with ZeRO: each rank changes its part of the sums, and all ranks receive all parts.
TEST_P(BucketerRanksTest, ScattersAndGathers) {
  const int64_t part = 6000;
  const std::vector<Bucket> buckets{{0, 96}, {96, 96 + ranks_ * part}};
  const int64_t end = buckets.back().end;
  Bucketer bucketer(communicator_, device_, *self_.stream, gradients_.data(), DType::kF32, buckets,
                    /*wire=*/{}, /*slots=*/1, /*on_one_rank=*/false, Scatter{.shared = 16});
  const Buffer values = communicator_.allocate(bytes_of(end, DType::kF32));
  const std::vector<Bucketer::Array> arrays(2, {values.data(), DType::kF32});
  for (int step = 0; step < 20; ++step) {
    choose(step);
    device_.copy(gradients_.data(), computed_.data(), values.bytes(), *self_.stream);
    bucketer.advance(end);
    bucketer.finish();
    const auto shared = self_.read<float>(gradients_.data(), 16);
    for (int64_t i = 0; i < 16; ++i) {
      ASSERT_EQ(shared[static_cast<size_t>(i)], ranks_ * (ranks_ + 1) / 2 * (i + step));
    }
    for (const auto& [begin, bucket_end] : buckets) {
      const int64_t elements = (bucket_end - begin) / ranks_, own = begin + rank_ * elements;
      device_.copy(values.as<float>() + own, gradients_.as<float>() + own,
                   bytes_of(elements, DType::kF32), *self_.stream);
    }
    bucketer.gather(arrays);
    bucketer.wait_for_gathered(96);
    bucketer.wait_for_gathered(0);
    const auto sums = self_.read<float>(values.data(), end);
    for (int64_t i = 0; i < end; ++i) {
      const auto expected = static_cast<float>(ranks_ * (ranks_ + 1) / 2 * (i % 1000 + step));
      ASSERT_EQ(sums[static_cast<size_t>(i)], expected) << "step " << step << ", element " << i;
    }
  }
}

TEST_P(BucketerRanksTest, AStepCanBeRecorded) {
  Bucketer bucketer(communicator_, device_, *self_.stream, gradients_.data(), DType::kF32,
                    buckets(), /*wire=*/{}, /*slots=*/2);
  std::vector<std::unique_ptr<Recording>> recordings;
  for (int slot = 0; slot < 2; ++slot) {
    recordings.push_back(device_.record(*self_.stream, [&] {
      bucketer.use_events(slot);
      compute(bucketer, [] {});
    }));
    if (!recordings.back()) GTEST_SKIP() << "the device records nothing";
  }
  for (int step = 0; step < 20; ++step) {
    choose(step);
    recordings[static_cast<size_t>(step % 2)]->replay(*self_.stream);
    ASSERT_NO_FATAL_FAILURE(expect_sums(step));
    EXPECT_EQ(bucketer.communication_seconds(step % 2) > 0, ranks_ > 1);
  }
}

TEST_P(BucketerRanksTest, SumsInHalfPrecision) {
  if (device_.kind() != DeviceKind::kCpu) GTEST_SKIP() << "conversions are only here for the CPU";
  const auto to_wire = [](const void* from, void* to, int64_t elements, Stream& stream) {
    stream.run(Task([=] {
      for (int64_t i = 0; i < elements; ++i) {
        static_cast<mpi::BF16*>(to)[i] =
            mpi::from_accumulator<mpi::BF16>(static_cast<const float*>(from)[i]);
      }
    }));
  };
  const auto from_wire = [](const void* from, void* to, int64_t elements, Stream& stream) {
    stream.run(Task([=] {
      for (int64_t i = 0; i < elements; ++i) {
        static_cast<float*>(to)[i] = mpi::to_accumulator(static_cast<const mpi::BF16*>(from)[i]);
      }
    }));
  };
  Bucketer bucketer(communicator_, device_, *self_.stream, gradients_.data(), DType::kF32,
                    buckets(), {DType::kBF16, to_wire, from_wire});
  const int64_t exact = bucketer.buckets().front().end;
  for (int step = 0; step < 5; ++step) {
    for (int64_t i = 0; i < ends_.back(); ++i) {
      computed_.as<float>()[i] = i < exact ? 1 + 0x1p-20f : static_cast<float>(i % 8 * (rank_ + 1));
    }
    compute(bucketer, [] {});
    const auto sums = self_.read<float>(gradients_.data(), ends_.back());
    for (int64_t i = 0; i < ends_.back(); ++i) {
      const float expected = i < exact ? static_cast<float>(ranks_) * (1 + 0x1p-20f)
                                       : static_cast<float>(i % 8 * ranks_ * (ranks_ + 1) / 2);
      ASSERT_EQ(sums[static_cast<size_t>(i)], expected) << "step " << step << ", element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(By, BucketerRanksTest, testing::ValuesIn(test::setups()),
                         [](const auto& each) { return test::name_of(each.param); });

}  // namespace
}  // namespace trireme::comm
