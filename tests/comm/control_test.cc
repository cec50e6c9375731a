#include "comm/control.h"

#include <new>

#include "tests/comm/ranks.h"

namespace trireme::comm {
namespace {

class ControlTest : public testing::Test {
 protected:
  std::unique_ptr<Communicator> communicator_ = test::join();
  int rank_ = communicator_->rank();
  int ranks_ = communicator_->size();

  // Returns the error that together() throws.
  template <class F>
  AgreedError failure_of(F&& stage) {
    try {
      together(*communicator_, stage);
    } catch (const AgreedError& error) {
      return error;
    }
    throw std::logic_error("no failure was agreed on");
  }
};

TEST_F(ControlTest, GathersTextsOfAnyLength) {
  const auto text = [](int rank) {
    return std::string(static_cast<size_t>(rank * 1000), 'x') + std::string("a\0b", 3) +
           std::to_string(rank);
  };
  const auto texts = all_gather(*communicator_, text(rank_));
  ASSERT_EQ(texts.size(), static_cast<size_t>(ranks_));
  for (int rank = 0; rank < ranks_; ++rank) EXPECT_EQ(texts[static_cast<size_t>(rank)], text(rank));
}

TEST_F(ControlTest, GathersEmptyTexts) {
  EXPECT_EQ(all_gather(*communicator_, ""), std::vector<std::string>(static_cast<size_t>(ranks_)));
}

// The whole message was "std::bad_alloc".
TEST_F(ControlTest, SaysThatMemoryIsExhausted) {
  const AgreedError error = failure_of([] { throw std::bad_alloc(); });
  EXPECT_NE(std::string(error.what()).find("out of memory"), std::string::npos) << error.what();
}

TEST_F(ControlTest, BroadcastsText) {
  for (int root = 0; root < ranks_; ++root) {
    EXPECT_EQ(broadcast(*communicator_, "from " + std::to_string(rank_), root),
              "from " + std::to_string(root));
    EXPECT_EQ(broadcast(*communicator_, rank_ == root ? "" : "other", root), "");
  }
}

TEST_F(ControlTest, DoesNotThrowIfNoRankFails) {
  for (int i = 0; i < 10; ++i) together(*communicator_, [] {});
}

TEST_F(ControlTest, EveryRankThrowsTheFailureOfOne) {
  for (int failing = 0; failing < ranks_; ++failing) {
    const AgreedError error = failure_of([&] {
      if (rank_ == failing) throw DataError("train.bin", "it is cut short");
    });
    EXPECT_EQ(error.code(), ExitCode::kBadData);
    const std::string message = "train.bin: it is cut short";
    EXPECT_EQ(std::string(error.what()),
              ranks_ == 1 ? message : "rank " + std::to_string(failing) + ": " + message);
    EXPECT_EQ(error.rank(), failing);
  }
}

TEST_F(ControlTest, ReportsTheLowestRankThatFailed) {
  if (ranks_ < 3) GTEST_SKIP() << "takes three ranks";
  const AgreedError error = failure_of([&] {
    if (rank_ > 0) {
      throw Error("failed on " + std::to_string(rank_),
                  rank_ == 1 ? ExitCode::kDoNotRequeue : ExitCode::kFailure);
    }
  });
  EXPECT_EQ(std::string(error.what()), "rank 1: failed on 1");
  EXPECT_EQ(error.code(), ExitCode::kDoNotRequeue);
}

TEST_F(ControlTest, NamesNoRankIfAllFail) {
  const AgreedError error = failure_of([] { throw ConfigError("run.txtpb:3", "no such field"); });
  EXPECT_EQ(std::string(error.what()), "run.txtpb:3: no such field");
  EXPECT_EQ(error.code(), ExitCode::kBadConfig);
}

TEST_F(ControlTest, AcceptsExceptionsOfAnyType) {
  const AgreedError standard = failure_of([] { throw std::out_of_range("index 7"); });
  EXPECT_EQ(std::string(standard.what()), "index 7");
  EXPECT_EQ(standard.code(), ExitCode::kFailure);
  const AgreedError other = failure_of([] { throw 5; });
  EXPECT_EQ(other.code(), ExitCode::kFailure);
}

}  // namespace
}  // namespace trireme::comm
