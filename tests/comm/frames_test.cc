#include "comm/watchdog/frames.h"

#include <gtest/gtest.h>

#include <random>
#include <stdexcept>
#include <string>

namespace trireme::comm {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string framed(const std::string& message) { return text_of(make_frame(bytes_of(message))); }

// The result of reading a stream.
struct Read {
  std::vector<std::string> messages;
  bool good = true;
};

Read read_in_pieces(const std::string& stream, const std::function<size_t()>& next_size) {
  FrameReader reader;
  Read read;
  for (size_t at = 0; at < stream.size();) {
    const std::string piece = stream.substr(at, next_size());
    at += piece.size();
    read.good = reader.read(bytes_of(piece), [&](std::span<const std::byte> message) {
      read.messages.push_back(text_of(message));
    });
  }
  return read;
}

Read read_at_once(const std::string& stream) {
  return read_in_pieces(stream, [&] { return stream.size(); });
}

TEST(FramesTest, AssemblesMessagesFromAnyPieces) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> messages;
    std::string stream;
    for (size_t i = 0, count = random() % 6; i < count; ++i) {
      messages.emplace_back(random() % 3 == 0 ? 0 : random() % 2000, static_cast<char>(random()));
      stream += framed(messages.back());
    }
    const size_t longest = 1 + random() % 40;
    const Read read = read_in_pieces(stream, [&] { return 1 + random() % longest; });
    EXPECT_TRUE(read.good);
    EXPECT_EQ(read.messages, messages);
  }
}

TEST(FramesTest, DeliversAMessageWithItsLastByte) {
  const std::string stream = framed("late");
  for (size_t cut = 0; cut < stream.size(); ++cut) {
    const Read read = read_at_once(stream.substr(0, cut));
    EXPECT_TRUE(read.good) << cut;
    EXPECT_TRUE(read.messages.empty()) << cut;
  }
  EXPECT_EQ(read_at_once(stream).messages, std::vector<std::string>{"late"});
}

TEST(FramesTest, DetectsGarbageAtItsFirstByte) {
  const Read read = read_at_once("GET / HTTP/1.1\r\n\r\n" + framed("behind it"));
  EXPECT_FALSE(read.good);
  EXPECT_TRUE(read.messages.empty());
  for (size_t damaged = 0; damaged < 4; ++damaged) {
    std::string stream = framed("message");
    stream[damaged] ^= 1;
    EXPECT_FALSE(read_at_once(stream.substr(0, damaged + 1)).good) << damaged;
  }
}

TEST(FramesTest, DeliversMessagesBeforeGarbage) {
  const Read read = read_at_once(framed("first") + "garbage" + framed("second"));
  EXPECT_FALSE(read.good);
  EXPECT_EQ(read.messages, std::vector<std::string>{"first"});
}

TEST(FramesTest, RejectsLengthsAboveTheLimit) {
  const std::string head = framed("").substr(0, 4);
  EXPECT_FALSE(read_at_once(head + "\xff\xff\xff\xff").good);
  EXPECT_FALSE(read_at_once(head + std::string("\x01\x00\x40\x00", 4)).good);
  EXPECT_TRUE(read_at_once(head + std::string("\x00\x00\x40\x00", 4)).good);
}

TEST(FramesTest, AcceptsTheLongestMessage) {
  const std::string longest(kMaxMessageBytes, 'x');
  EXPECT_EQ(read_at_once(framed(longest)).messages, std::vector<std::string>{longest});
  EXPECT_THROW(framed(longest + 'x'), std::length_error);
}

}  // namespace
}  // namespace trireme::comm
