// Ranks, here threads, that call one another at addresses of which not all are any good.
#include "comm/watchdog/mesh.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

namespace trireme::comm {
namespace {

using namespace std::chrono_literals;

constexpr double kSeconds = 10;

Listener listen_here() { return *listen_on(*Address::parse("127.0.0.1:0")); }

Secret secret_of(int seed) {
  Secret secret;
  for (size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<std::byte>(seed + 3 * i);
  return secret;
}

// One that listens, and to whom nobody gets through: its queue is full.
class Silent {
 public:
  Silent() : listener_(listen_here()) {
    listen(listener_.socket.fd(), 0);
    for (int i = 0; i < 4; ++i) callers_.push_back(connect_to(listener_.address));
  }
  const Address& address() const { return listener_.address; }

 private:
  Listener listener_;
  std::vector<Socket> callers_;
};

// Nobody listens there any more.
Address closed_address() { return listen_here().address; }

struct Result {
  MeshPeer caller{.rank = 0, .addresses = {}};
  MeshPeer called{.rank = 1, .addresses = {}};
};

// Rank 1 calls rank 0 at the addresses, of which an empty one stands for where rank 0 listens.
Result meet(const std::vector<std::optional<Address>>& addresses, double seconds = kSeconds,
            const Secret& callers_secret = secret_of(1), int calls_itself = 1) {
  const Listener listener = listen_here();
  std::vector<MeshPeer> calls(1);
  for (const auto& address : addresses) {
    calls[0].addresses.push_back(address.value_or(listener.address));
  }
  std::vector<MeshPeer> waits(1);
  waits[0].rank = 1;
  std::thread caller([&] { connect_all(calls_itself, {}, callers_secret, seconds, calls); });
  std::vector<Listener> listeners;
  listeners.push_back({Socket(dup(listener.socket.fd())), listener.address});
  connect_all(0, listeners, secret_of(1), seconds, waits);
  caller.join();
  return {std::move(calls[0]), std::move(waits[0])};
}

void expect_connected(const Result& result) {
  ASSERT_TRUE(result.caller.socket) << result.caller.failure;
  ASSERT_TRUE(result.called.socket);
  for (const auto& [from, to] : {std::pair(&result.caller.socket, &result.called.socket),
                                 std::pair(&result.called.socket, &result.caller.socket)}) {
    const std::array<std::byte, 3> sent = {std::byte{1}, std::byte{2}, std::byte{3}};
    EXPECT_EQ(send_some(*from, sent).bytes, sent.size());
    std::array<std::byte, 8> received = {};
    size_t bytes = 0;
    for (int i = 0; i < 1000 && bytes == 0; ++i) {
      std::this_thread::sleep_for(1ms);
      bytes = receive_some(*to, received).bytes;
    }
    EXPECT_EQ(bytes, sent.size()) << "more than the message, or less, is on the way";
    EXPECT_EQ(std::memcmp(received.data(), sent.data(), sent.size()), 0);
  }
}

void expect_strangers(const Result& result, const std::string& why) {
  EXPECT_FALSE(result.caller.socket);
  EXPECT_FALSE(result.called.socket);
  EXPECT_NE(result.caller.failure.find(why), std::string::npos) << result.caller.failure;
}

TEST(MeshTest, ConnectsByOneAddress) { expect_connected(meet({{}})); }

TEST(MeshTest, GoesOnWhereNobodyListens) {
  expect_connected(meet({closed_address(), closed_address(), {}, closed_address()}));
}

TEST(MeshTest, GoesOnWhereNobodyAnswers) {
  const Silent silent;
  const Silent silent_too;
  expect_connected(meet({silent.address(), silent_too.address(), {}}));
}

TEST(MeshTest, TheSameAddressTwiceMakesOneConnection) { expect_connected(meet({{}, {}, {}})); }

TEST(MeshTest, ConnectsManyAtOnce) {
  constexpr int kRanks = 24;
  std::vector<Listener> listeners;
  std::vector<std::vector<MeshPeer>> peers(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) listeners.push_back(listen_here());
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int other = 0; other < kRanks; ++other) {
      if (other == rank) continue;
      MeshPeer& peer = peers[static_cast<size_t>(rank)].emplace_back();
      peer.rank = other;
      if (other < rank) peer.addresses = {listeners[static_cast<size_t>(other)].address};
    }
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto i = static_cast<size_t>(rank);
      std::vector<Listener> own;
      own.push_back(std::move(listeners[i]));
      connect_all(rank, own, secret_of(1), kSeconds, peers[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& each : peers) {
    for (const MeshPeer& peer : each) EXPECT_TRUE(peer.socket) << peer.failure;
  }
}

TEST(MeshTest, WhoDoesNotKnowTheSecretIsAStranger) {
  for (const size_t wrong : {size_t{0}, size_t{31}}) {
    Secret other = secret_of(1);
    other[wrong] ^= std::byte{1};
    expect_strangers(meet({{}}, 0.3, other), "Connection reset by peer");
  }
}

TEST(MeshTest, WhoAnswersWithAnotherSecretIsAStranger) {
  Secret other = secret_of(1);
  other[63] ^= std::byte{1};
  const Result result = meet({{}}, 0.3, other);
  EXPECT_FALSE(result.caller.socket);
  EXPECT_NE(result.caller.failure.find("Protocol error"), std::string::npos)
      << result.caller.failure;
}

TEST(MeshTest, WhoIsNotExpectedIsAStranger) {
  expect_strangers(meet({{}}, 0.3, secret_of(1), /*calls_itself=*/2), "Connection reset by peer");
}

TEST(MeshTest, TellsWhatBecameOfEachAddress) {
  const Silent silent;
  const Address closed = closed_address();
  const Result result = meet({closed, silent.address()}, 0.3);
  EXPECT_FALSE(result.caller.socket);
  EXPECT_EQ(result.caller.failure,
            closed.text() + " (Connection refused), " + silent.address().text() + " (no answer)");
}

}  // namespace
}  // namespace trireme::comm
