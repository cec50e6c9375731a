// Connects ranks, simulated by threads, at addresses of which some do not work.
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

// A listener that does not answer, because its queue is full.
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

// Returns an address at which nobody listens.
Address closed_address() { return listen_here().address; }

struct Result {
  MeshPeer client{.rank = 0, .addresses = {}};
  MeshPeer server{.rank = 1, .addresses = {}};
};

// Connects rank 1, which claims to be `client_rank`, to rank 0 at the addresses. An empty one
// stands for the address at which rank 0 listens.
Result connect_ranks(const std::vector<std::optional<Address>>& addresses,
                     double seconds = kSeconds, const Secret& client_secret = secret_of(1),
                     int client_rank = 1) {
  const Listener listener = listen_here();
  std::vector<MeshPeer> clients(1);
  for (const auto& address : addresses) {
    clients[0].addresses.push_back(address.value_or(listener.address));
  }
  std::vector<MeshPeer> servers(1);
  servers[0].rank = 1;
  std::thread client([&] { connect_all(client_rank, {}, client_secret, seconds, clients); });
  std::vector<Listener> listeners;
  listeners.push_back({Socket(dup(listener.socket.fd())), listener.address});
  connect_all(0, listeners, secret_of(1), seconds, servers);
  client.join();
  return {std::move(clients[0]), std::move(servers[0])};
}

void expect_connected(const Result& result) {
  ASSERT_TRUE(result.client.socket) << result.client.failure;
  ASSERT_TRUE(result.server.socket);
  for (const auto& [from, to] : {std::pair(&result.client.socket, &result.server.socket),
                                 std::pair(&result.server.socket, &result.client.socket)}) {
    const std::array<std::byte, 3> sent = {std::byte{1}, std::byte{2}, std::byte{3}};
    EXPECT_EQ(send_some(*from, sent).bytes, sent.size());
    std::array<std::byte, 8> received = {};
    size_t bytes = 0;
    for (int i = 0; i < 1000 && bytes == 0; ++i) {
      std::this_thread::sleep_for(1ms);
      bytes = receive_some(*to, received).bytes;
    }
    EXPECT_EQ(bytes, sent.size()) << "more or fewer bytes than the message were sent";
    EXPECT_EQ(std::memcmp(received.data(), sent.data(), sent.size()), 0);
  }
}

void expect_rejected(const Result& result, const std::string& reason) {
  EXPECT_FALSE(result.client.socket);
  EXPECT_FALSE(result.server.socket);
  EXPECT_NE(result.client.failure.find(reason), std::string::npos) << result.client.failure;
}

TEST(MeshTest, ConnectsByOneAddress) { expect_connected(connect_ranks({{}})); }

TEST(MeshTest, TriesTheNextAddressIfNobodyListens) {
  expect_connected(connect_ranks({closed_address(), closed_address(), {}, closed_address()}));
}

TEST(MeshTest, TriesTheNextAddressIfThereIsNoAnswer) {
  const Silent silent;
  const Silent other;
  expect_connected(connect_ranks({silent.address(), other.address(), {}}));
}

TEST(MeshTest, ConnectsOnceIfAnAddressIsRepeated) { expect_connected(connect_ranks({{}, {}, {}})); }

TEST(MeshTest, ConnectsManyRanks) {
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

TEST(MeshTest, RejectsAClientWithAnotherSecret) {
  for (const size_t wrong : {size_t{0}, size_t{31}}) {
    Secret other = secret_of(1);
    other[wrong] ^= std::byte{1};
    expect_rejected(connect_ranks({{}}, 0.3, other), "Connection reset by peer");
  }
}

TEST(MeshTest, RejectsAServerWithAnotherSecret) {
  Secret other = secret_of(1);
  other[63] ^= std::byte{1};
  const Result result = connect_ranks({{}}, 0.3, other);
  EXPECT_FALSE(result.client.socket);
  EXPECT_NE(result.client.failure.find("Protocol error"), std::string::npos)
      << result.client.failure;
}

TEST(MeshTest, RejectsAnUnexpectedRank) {
  expect_rejected(connect_ranks({{}}, 0.3, secret_of(1), /*client_rank=*/2),
                  "Connection reset by peer");
}

TEST(MeshTest, ReportsTheFailureOfEachAddress) {
  const Silent silent;
  const Address closed = closed_address();
  const Result result = connect_ranks({closed, silent.address()}, 0.3);
  EXPECT_FALSE(result.client.socket);
  EXPECT_EQ(result.client.failure,
            closed.text() + " (Connection refused), " + silent.address().text() + " (no answer)");
}

}  // namespace
}  // namespace trireme::comm
