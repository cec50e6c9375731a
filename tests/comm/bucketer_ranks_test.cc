#include <random>
#include <thread>

#include "comm/bucketer.h"
#include "tests/comm/ranks.h"

namespace trireme {
namespace {

using test::Hosts;

class BucketerRanksTest : public testing::TestWithParam<Hosts> {
 protected:
  std::unique_ptr<Device> device_ = test::cpu();
  std::unique_ptr<Stream> compute_ = device_->create_stream(StreamKind::kCompute);
  std::unique_ptr<Communicator> communicator_ = test::join(GetParam());
};

// A backward pass writes gradients at a rank's own pace while earlier ones are summed.
TEST_P(BucketerRanksTest, SumsWhileGradientsAreWritten) {
  const int rank = communicator_->rank();
  const int ranks = communicator_->size();
  const std::vector<int64_t> ends = {100, 5000, 5001, 45'000, 90'007, 90'010, 200'003};
  const Buffer buffer = communicator_->allocate(static_cast<size_t>(ends.back()) * sizeof(float));
  auto* gradients = buffer.as<float>();
  Bucketer bucketer(*communicator_, *device_, *compute_, gradients, DType::kF32,
                    cut_buckets(ends, DType::kF32, {4000, 150'000}));
  ASSERT_GE(bucketer.buckets().size(), 3u);
  std::mt19937 random(static_cast<uint32_t>(rank));
  for (int step = 0; step < 60; ++step) {
    int64_t begin = 0;
    for (int64_t end : ends) {
      if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 800));
      for (int64_t i = begin; i < end; ++i) {
        gradients[i] = static_cast<float>((rank + 1) * (i % 1000 + step));
      }
      bucketer.advance(begin = end);
    }
    bucketer.finish();
    for (int64_t i = 0; i < ends.back(); ++i) {
      const auto expected = static_cast<float>(ranks * (ranks + 1) / 2 * (i % 1000 + step));
      ASSERT_EQ(gradients[i], expected) << "step " << step << ", element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Placed, BucketerRanksTest, testing::Values(Hosts::kReal, Hosts::kHalves),
                         [](const auto& each) { return test::name_of(each.param); });

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) { return trireme::test::run_on_all_ranks(argc, argv); }
