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

Key key_of(int seed) {
  Key key;
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<unsigned char>(seed + 3 * i);
  return key;
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
                     double seconds = kSeconds, const Key& client_key = key_of(1),
                     int client_rank = 1) {
  const Listener listener = listen_here();
  std::vector<MeshPeer> clients(1);
  for (const auto& address : addresses) {
    clients[0].addresses.push_back(address.value_or(listener.address));
  }
  std::vector<MeshPeer> servers(1);
  servers[0].rank = 1;
  std::thread client([&] { connect_all(client_rank, {}, client_key, seconds, clients); });
  std::vector<Listener> listeners;
  listeners.push_back({Socket(dup(listener.socket.fd())), listener.address});
  connect_all(0, listeners, key_of(1), seconds, servers);
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
      connect_all(rank, own, key_of(1), kSeconds, peers[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& each : peers) {
    for (const MeshPeer& peer : each) EXPECT_TRUE(peer.socket) << peer.failure;
  }
}

TEST(MeshTest, RejectsAnotherKey) {
  for (const size_t wrong : {size_t{0}, size_t{31}}) {
    Key other = key_of(1);
    other[wrong] ^= 1;
    expect_rejected(connect_ranks({{}}, 0.3, other), "Connection reset by peer");
  }
}

// Receives what arrives within 100 ms.
std::vector<std::byte> receive_soon(const Socket& socket) {
  std::this_thread::sleep_for(100ms);
  std::vector<std::byte> bytes(1000);
  bytes.resize(receive_some(socket, bytes).bytes);
  return bytes;
}

// Rank 1 calls a stranger, who sends back what it gets.
TEST(MeshTest, RejectsItsOwnMessages) {
  const Listener stranger = listen_here();
  std::jthread echo([&](const std::stop_token& stop) {
    std::vector<Socket> callers;
    while (!stop.stop_requested()) {
      if (Socket caller = accept_from(stranger.socket)) callers.push_back(std::move(caller));
      for (const Socket& caller : callers) {
        std::array<std::byte, 32> bytes;  // the size of a challenge and of a proof
        send_some(caller, std::span(bytes).first(receive_some(caller, bytes).bytes));
      }
      std::this_thread::sleep_for(1ms);
    }
  });
  expect_rejected(connect_ranks({stranger.address}, 0.3), "Protocol error");
}

// A stranger relays a connection between two ranks, and later sends the same to one of them again.
TEST(MeshTest, RejectsARecordedConnection) {
  const Listener listener = listen_here();
  const Listener relay = listen_here();
  std::vector<MeshPeer> clients(1);
  clients[0].addresses = {relay.address};
  std::thread client([&] { connect_all(1, {}, key_of(1), kSeconds, clients); });
  const auto serve = [&](double seconds) {
    std::vector<MeshPeer> servers(1);
    servers[0].rank = 1;
    std::vector<Listener> listeners;
    listeners.push_back({Socket(dup(listener.socket.fd())), listener.address});
    connect_all(0, listeners, key_of(1), seconds, servers);
    return std::move(servers[0].socket);
  };
  Socket served;
  std::thread server([&] { served = serve(kSeconds); });
  Socket caller;
  while (!(caller = accept_from(relay.socket))) std::this_thread::sleep_for(1ms);
  const Socket called = connect_to(listener.address);
  std::vector<std::vector<std::byte>> recorded;
  for (int i = 0; i < 2; ++i) {
    recorded.push_back(receive_soon(caller));
    send_some(called, recorded.back());
    send_some(caller, receive_soon(called));
  }
  client.join();
  server.join();
  ASSERT_TRUE(served);
  ASSERT_TRUE(clients[0].socket);

  server = std::thread([&] { served = serve(0.5); });
  const Socket again = connect_to(listener.address);
  for (const auto& message : recorded) {
    send_some(again, message);
    receive_soon(again);
  }
  server.join();
  EXPECT_FALSE(served);
}

TEST(MeshTest, ConnectsUnderAFloodOfConnections) {
  const Listener listener = listen_here();
  std::jthread flood([&](const std::stop_token& stop) {
    std::vector<Socket> open(400);  // silent connections
    for (size_t i = 0; !stop.stop_requested(); i = (i + 1) % open.size()) {
      open[i] = connect_to(listener.address);
    }
  });
  std::this_thread::sleep_for(200ms);
  std::vector<MeshPeer> clients(1);
  clients[0].addresses = {listener.address};
  std::vector<MeshPeer> servers(1);
  servers[0].rank = 1;
  std::thread client([&] { connect_all(1, {}, key_of(1), 30, clients); });
  std::vector<Listener> listeners;
  listeners.push_back({Socket(dup(listener.socket.fd())), listener.address});
  connect_all(0, listeners, key_of(1), 30, servers);
  client.join();
  expect_connected({std::move(clients[0]), std::move(servers[0])});
}

TEST(MeshTest, RejectsAnUnexpectedRank) {
  expect_rejected(connect_ranks({{}}, 0.3, key_of(1), /*client_rank=*/2),
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
