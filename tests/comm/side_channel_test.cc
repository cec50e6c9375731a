#include "comm/watchdog/side_channel.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "comm/control.h"
#include "comm/watchdog/frames.h"
#include "comm/watchdog/socket.h"
#include "tests/comm/ranks.h"

namespace trireme::comm {
namespace {

using namespace std::chrono_literals;
using test::Hosts;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Waits until the condition holds, for at most ten seconds.
template <class Condition>
bool soon(Condition condition) {
  for (const auto end = std::chrono::steady_clock::now() + 10s;
       std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(1ms)) {
    if (condition()) return true;
  }
  return false;
}

// Stores the latest message of each peer.
class Mailbox {
 public:
  explicit Mailbox(SideChannel& channel) : channel_(channel) {}
  void receive() {
    channel_.receive([&](int rank, std::span<const std::byte> message) {
      latest_[rank] = text_of(message);
      ++count_;
    });
  }
  // Waits until every peer's latest message is `text`.
  bool wait_for(const std::string& text) {
    return soon([&] {
      receive();
      const auto& peers = channel_.peers();
      return std::ranges::all_of(peers,
                                 [&](const auto& peer) { return latest_[peer.rank] == text; });
    });
  }
  int count() const { return count_; }

 private:
  SideChannel& channel_;
  std::map<int, std::string> latest_;
  int count_ = 0;
};

// Sets an environment variable during its lifetime.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Setting() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

class SideChannelTest : public testing::TestWithParam<test::Hosts> {
 protected:
  std::unique_ptr<Communicator> world_ = test::join(GetParam());
  const Placement& place_ = world_->placement();
};

INSTANTIATE_TEST_SUITE_P(Hosts, SideChannelTest,
                         testing::Values(test::Hosts::kReal, test::Hosts::kHalves,
                                         test::Hosts::kInterleaved, test::Hosts::kOneEach),
                         [](const auto& test) { return test::name_of(test.param); });

TEST_P(SideChannelTest, ConnectsRanksOfTheSameNumberOnDifferentHosts) {
  const SideChannel channel(*world_);
  const auto places = all_gather(*world_, fmt::format("{} {}", place_.host, place_.local_rank));
  std::map<int, int> expected;  // host by rank
  for (int rank = 0; rank < place_.ranks; ++rank) {
    std::istringstream place(places[static_cast<size_t>(rank)]);
    int host = 0;
    int local_rank = 0;
    place >> host >> local_rank;
    if (host != place_.host && local_rank == place_.local_rank) expected[rank] = host;
  }
  std::map<int, int> found;
  for (const auto& peer : channel.peers()) found[peer.rank] = peer.host;
  EXPECT_EQ(found, expected);
}

TEST_P(SideChannelTest, DeliversMessages) {
  SideChannel channel(*world_);
  Mailbox mailbox(channel);
  for (const size_t size : {size_t{1}, size_t{1000}, kMaxMessageBytes}) {
    const std::string text(size, 'm');
    channel.send(bytes_of(text));
    EXPECT_TRUE(mailbox.wait_for(text)) << size;
    together(*world_, [] {});
  }
}

TEST_P(SideChannelTest, DeliversTheNewestMessageToASlowPeer) {
  SideChannel channel(*world_);
  Mailbox mailbox(channel);
  const std::string filler(size_t{1} << 20, 'f');
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 200; ++i) channel.send(bytes_of(filler));  // far more than sockets hold
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s) << "sending blocked";
  channel.send(bytes_of("newest"));
  together(*world_, [] {});
  EXPECT_TRUE(mailbox.wait_for("newest"));
  EXPECT_LE(mailbox.count(), 100 * std::ssize(channel.peers()));
}

TEST_P(SideChannelTest, DeliversTheLastMessageOfAPeerThatLeaves) {
  auto channel = std::make_unique<SideChannel>(*world_);
  const bool leaves = place_.host == 0;
  channel->send(bytes_of("unread, so that closing could discard the last message"));
  together(*world_, [] {});
  if (leaves) {
    channel->send(bytes_of("last message"));
    channel.reset();
  } else {
    Mailbox mailbox(*channel);
    const auto& peers = channel->peers();
    const auto left = std::ranges::find(peers, 0, &SideChannel::Peer::host);
    if (left != peers.end()) {
      bool received = false;
      EXPECT_TRUE(soon([&] {
        channel->receive([&](int rank, std::span<const std::byte> message) {
          received |= rank == left->rank && text_of(message) == "last message";
        });
        return left->end == SideChannel::End::kClosed;
      }));
      EXPECT_TRUE(received);
      channel->send(bytes_of("to the remaining peers"));
    }
  }
  together(*world_, [] {});
}

TEST_P(SideChannelTest, AllRanksThrowIfThereAreNoAddresses) {
  if (place_.hosts == 1) GTEST_SKIP() << "takes two hosts";
  const Setting nothing("OMPI_MCA_btl_tcp_if_include", place_.rank == 0 ? "none0" : "lo");
  try {
    const SideChannel channel(*world_, /*seconds=*/0.2);
    ADD_FAILURE() << "connected without addresses";
  } catch (const AgreedError& error) {
    const auto texts = all_gather(*world_, error.what());
    EXPECT_EQ(texts, std::vector<std::string>(texts.size(), texts[0]));
    EXPECT_NE(texts[0].find("has no address for rank 0 (host " + place_.host_name + ")"),
              std::string::npos)
        << texts[0];
  }
}

TEST_P(SideChannelTest, UsesTheAddressesOfOpenMpisSettings) {
  for (const char* network : {"127.0.0.0/8", "::1/128"}) {
    const Setting loopback("OMPI_MCA_btl_tcp_if_include", network);
    if (local_addresses().empty()) continue;  // a machine without IPv6
    SideChannel channel(*world_);
    channel.send(bytes_of(network));
    EXPECT_TRUE(Mailbox(channel).wait_for(network));
    together(*world_, [] {});
  }
}

// Returns the IPv4 ports of loopback at which this process listens.
std::set<uint16_t> own_listeners() {
  std::set<std::string> inodes;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    char target[64] = {};
    const std::string path = fmt::format("/proc/self/fd/{}", entry->d_name);
    if (readlink(path.c_str(), target, sizeof target - 1) > 0) inodes.insert(target);
  }
  closedir(folder);
  std::set<uint16_t> ports;
  std::ifstream file("/proc/net/tcp");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
        timeout >> inode;
    if (state != "0A" || !local.starts_with("0100007F") ||
        !inodes.contains("socket:[" + inode + "]"))
      continue;
    ports.insert(static_cast<uint16_t>(std::stoi(local.substr(9), nullptr, 16)));
  }
  return ports;
}

// Connects to this process while it waits for its peers, and sends nothing, too few bytes, as many
// as expected, or too many; half of the connections are closed at once.
std::vector<Socket> connect_unknown_clients(const std::set<uint16_t>& known) {
  std::vector<Socket> unknown_clients;
  std::set<uint16_t> ports;
  soon([&] {
    ports = own_listeners();
    std::erase_if(ports, [&](uint16_t port) { return known.contains(port); });
    return !ports.empty();
  });
  for (const uint16_t port : ports) {
    for (const size_t length : {0, 7, 72, 5000}) {
      for (int i = 0; i < 100; ++i) {
        unknown_clients.push_back(connect_to(*Address::parse(fmt::format("127.0.0.1:{}", port))));
        soon([&] {
          const Transfer sent =
              send_some(unknown_clients.back(), bytes_of(std::string(length, 'x')));
          return length == 0 || sent.bytes > 0 || sent.error != 0;
        });
        if (i % 2 == 0) unknown_clients.pop_back();
      }
    }
  }
  return unknown_clients;
}

TEST_P(SideChannelTest, RejectsUnknownClients) {
  if (place_.hosts == 1) GTEST_SKIP() << "takes two hosts";
  const auto known = own_listeners();
  together(*world_, [] {});
  std::vector<Socket> unknown_clients;
  std::thread connecting([&] {
    if (place_.rank == 0) unknown_clients = connect_unknown_clients(known);
  });
  // The last rank starts late, so that the others wait for it.
  if (place_.rank == place_.ranks - 1) std::this_thread::sleep_for(500ms);
  SideChannel channel(*world_);
  connecting.join();
  EXPECT_EQ(unknown_clients.empty(), place_.rank != 0);
  EXPECT_EQ(own_listeners(), known) << "a listener is still open";
  channel.send(bytes_of("message"));
  EXPECT_TRUE(Mailbox(channel).wait_for("message"));
  for (const Socket& each : unknown_clients) {
    std::array<std::byte, 100> answer;
    EXPECT_EQ(receive_some(each, answer).bytes, 0u) << "an unknown client was answered";
  }
  together(*world_, [] {});
}

}  // namespace
}  // namespace trireme::comm
