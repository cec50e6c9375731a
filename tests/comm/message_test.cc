#include "comm/watchdog/message.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>

namespace trireme::comm {
namespace {

RankView some_rank(int number) {
  RankView view;
  view.rank = number;
  view.seen = 1000 + number;
  view.heartbeat = 999;
  view.phase = Phase::kBackward;
  view.since = 500;
  view.step = 41;
  view.process_steps = 40;
  view.step_ns = 123'456'789'012;
  view.waiting_ns = 12;
  view.idle_ns = 11;
  view.awaits_transfer = true;
  view.detail = "sample 7";
  view.calls = {
      {7, 990, 41, 1 << 20, 2, "fc1", "all_reduce_sum", DType::kF32, 0, Group::kWorld, ""},
      {std::numeric_limits<uint32_t>::max() + 5ull, 0, 3, 8, -1, "", "MPI_Allgather", DType::kU8, 6,
       1'000'000'000'000, "ranks 0 and 2"}};
  view.failed = 998;
  view.exit_code = 3;
  view.caused_by_peer = true;
  view.failure = "shard-1.tar is cut short";
  view.ended = 999;
  view.state = 'T';
  return view;
}

Message some_message() {
  Message message;
  message.now = 1005;
  message.ranks = {some_rank(2), some_rank(3)};
  message.decision = Decision{1004, 2, {Fault::kStuck, 3, 1, "rank 3 is stuck in data"}};
  return message;
}

void expect_equal(const Message& a, const Message& b) {
  EXPECT_EQ(a.now, b.now);
  EXPECT_EQ(a.ranks, b.ranks);
  ASSERT_EQ(a.decision.has_value(), b.decision.has_value());
  if (!a.decision) return;
  EXPECT_EQ(a.decision->when, b.decision->when);
  EXPECT_EQ(a.decision->rank, b.decision->rank);
  EXPECT_EQ(a.decision->diagnosis.fault, b.decision->diagnosis.fault);
  EXPECT_EQ(a.decision->diagnosis.rank_at_fault, b.decision->diagnosis.rank_at_fault);
  EXPECT_EQ(a.decision->diagnosis.exit_code, b.decision->diagnosis.exit_code);
  EXPECT_EQ(a.decision->diagnosis.text, b.decision->diagnosis.text);
}

TEST(MessageTest, DecodesToTheSameMessage) {
  const Message message = some_message();
  const auto decoded = decode(encode(message));
  ASSERT_TRUE(decoded);
  expect_equal(*decoded, message);
}

TEST(MessageTest, MayBeEmpty) {
  const auto decoded = decode(encode({}));
  ASSERT_TRUE(decoded);
  expect_equal(*decoded, {});
}

TEST(MessageTest, IsLittleEndian) {
  Message message;
  message.now = 0x0102030405060708;
  const auto bytes = encode(message);
  const unsigned char expected[] = {'T', 'R', 'G', 'M', 4, 0, 0, 0, 8, 7, 6,
                                    5,   4,   3,   2,   1, 0, 0, 0, 0, 0};
  ASSERT_EQ(bytes.size(), sizeof expected);
  EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof expected), 0);
}

TEST(MessageTest, TruncatesTexts) {
  Message message;
  message.ranks = {some_rank(0)};
  message.ranks[0].failure = std::string(5000, 'x');
  message.decision = Decision{1, 0, {Fault::kDead, 0, 1, std::string(5000, 'y')}};
  const auto decoded = decode(encode(message));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->ranks[0].failure, std::string(768, 'x'));
  EXPECT_EQ(decoded->decision->diagnosis.text, std::string(2000, 'y'));
}

TEST(MessageTest, RejectsTruncatedAndLongerMessages) {
  auto bytes = encode(some_message());
  for (size_t length = 0; length < bytes.size(); ++length) {
    ASSERT_FALSE(decode(std::span(bytes).first(length))) << length;
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode(bytes));
}

// A message that is accepted despite corrupted bytes can be encoded again without change.
TEST(MessageTest, ToleratesCorruptedBytes) {
  const auto good = encode(some_message());
  std::mt19937 random(1);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    auto bytes = good;
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < changes; ++i) bytes[random() % bytes.size()] = std::byte(random() & 0xff);
    auto decoded = decode(bytes);
    if (!decoded) continue;
    ++accepted;
    const auto again = decode(encode(*decoded));
    ASSERT_TRUE(again);
    expect_equal(*again, *decoded);
    convert_times(*decoded, 1'000'000);
  }
  EXPECT_GT(accepted, 0);
}

TEST(MessageTest, RejectsNumbersOutOfRange) {
  const auto refused = [](auto change) {
    Message message = some_message();
    change(message);
    return !decode(encode(message));
  };
  EXPECT_FALSE(refused([](Message&) {}));
  EXPECT_TRUE(refused([](Message& m) { m.now = -1; }));
  EXPECT_TRUE(refused([](Message& m) { m.ranks[0].rank = -1; }));
  EXPECT_TRUE(refused([](Message& m) { m.ranks[0].phase = static_cast<Phase>(9); }));
  EXPECT_TRUE(refused([](Message& m) { m.ranks[0].heartbeat = int64_t{1} << 62; }));
  EXPECT_TRUE(refused([](Message& m) { m.ranks[0].calls[1].bucket = -2; }));
  EXPECT_TRUE(refused([](Message& m) { m.ranks[0].calls[1].sequence = ~uint64_t{0}; }));
  EXPECT_TRUE(refused([](Message& m) { m.ranks[0].calls[1].group = 0; }));
  EXPECT_TRUE(refused([](Message& m) { m.ranks[0].calls[1].dtype = static_cast<DType>(7); }));
  EXPECT_TRUE(refused([](Message& m) { m.ranks[0].calls.resize(17, m.ranks[0].calls[0]); }));
  EXPECT_TRUE(refused([](Message& m) { m.ranks[0].exit_code = 256; }));
  EXPECT_TRUE(refused([](Message& m) { m.decision->diagnosis.fault = static_cast<Fault>(8); }));
  EXPECT_TRUE(refused([](Message& m) { m.decision->diagnosis.rank_at_fault = -2; }));
  EXPECT_TRUE(refused([](Message& m) { m.decision->diagnosis.exit_code = 0; }));
}

// A count that exceeds the message must not allocate memory.
TEST(MessageTest, RejectsACountThatExceedsTheMessage) {
  auto bytes = encode({});
  bytes[16] = std::byte{0xff};
  bytes[17] = std::byte{0xff};
  EXPECT_FALSE(decode(bytes));
}

TEST(MessageTest, ConvertsTimesToTheReceiversClock) {
  Message message = some_message();
  message.ranks[0].ended = 0;
  convert_times(message, 2005);
  EXPECT_EQ(message.ranks[0].heartbeat, 1999);
  EXPECT_EQ(message.ranks[0].calls[0].began, 1990);
  EXPECT_EQ(message.ranks[0].calls[1].began, 0);  // no call in flight
  EXPECT_EQ(message.ranks[0].ended, 0);
  EXPECT_EQ(message.decision->when, 2004);
  EXPECT_EQ(message.ranks[0].step_ns, some_rank(2).step_ns);
  // With a clock that has just started, earlier times would be negative.
  convert_times(message, 10);
  EXPECT_GE(message.ranks[0].since, 1);
}

}  // namespace
}  // namespace trireme::comm
