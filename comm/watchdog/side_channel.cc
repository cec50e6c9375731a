#include "comm/watchdog/side_channel.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <utility>

#include "comm/control.h"
#include "comm/watchdog/frames.h"
#include "comm/watchdog/mesh.h"
#include "comm/watchdog/socket.h"

namespace trireme::comm {
namespace {

// A peer that floods is read on at the next call.
constexpr int kReadsAtOnce = 64;
constexpr size_t kMaxFailuresTold = 4;

// What the ranks tell one another before they are connected.
struct Card {
  int host = 0;
  int local_rank = 0;
  std::string machine;  // where loopback leads; empty: unknown
  std::string host_name;
  std::vector<Address> addresses;
};

// Processes with the same one can talk by loopback, whatever their hosts are called.
std::string this_machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  struct stat network = {};
  if (!(file >> boot) || stat("/proc/self/ns/net", &network) != 0) return {};
  return fmt::format("{}/{}", boot, network.st_ino);
}

std::string write(const Card& card) {
  std::string text =
      fmt::format("{}\n{}\n{}\n{}\n", card.host, card.local_rank, card.machine, card.host_name);
  for (const Address& address : card.addresses) text += address.text() + '\n';
  return text;
}

Card read_card(const std::string& text) {
  std::istringstream lines(text);
  const auto line = [&] {
    std::string words;
    std::getline(lines, words);
    return words;
  };
  Card card;
  card.host = std::stoi(line());
  card.local_rank = std::stoi(line());
  card.machine = line();
  card.host_name = line();
  for (std::string words = line(); !words.empty(); words = line()) {
    if (const auto address = Address::parse(words)) card.addresses.push_back(*address);
  }
  return card;
}

// Where a process of this machine, or of another one, finds the owner of the card.
std::vector<Address> ways_to(const Card& card, const std::string& from_machine) {
  std::vector<Address> ways = card.addresses;
  if (!card.machine.empty() && card.machine == from_machine) {
    std::stable_partition(ways.begin(), ways.end(), std::mem_fn(&Address::loopback));
  } else {
    std::erase_if(ways, std::mem_fn(&Address::loopback));
  }
  return ways;
}

std::vector<Listener> listen_everywhere() {
  std::vector<Listener> listeners;
  for (const Address& address : own_addresses()) {
    if (auto listener = listen_on(address)) listeners.push_back(std::move(*listener));
  }
  return listeners;
}

Secret draw_secret() {
  Secret secret;
  if (getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size())) {
    throw CommError(fmt::format("getrandom failed: {}", std::strerror(errno)));
  }
  return secret;
}

Secret share_secret(Communicator& world) {
  Secret secret = {};
  together(world, [&] {
    if (world.rank() == 0) secret = draw_secret();
  });
  const std::string text =
      broadcast(world, std::string(reinterpret_cast<const char*>(secret.data()), secret.size()), 0);
  std::memcpy(secret.data(), text.data(), secret.size());
  return secret;
}

std::string who(const std::vector<Card>& cards, int rank) {
  return fmt::format("rank {} (host {})", rank, cards[rank].host_name);
}

// What this rank has to say about the peers that it is not connected to.
std::string describe_failures(const std::vector<Card>& cards, int own,
                              const std::vector<Acquaintance>& peers) {
  std::string text;
  for (const Acquaintance& peer : peers) {
    if (peer.socket) continue;
    text += text.empty() ? "" : "\n";
    if (peer.rank > own) {
      text += fmt::format("{} has not called {}", who(cards, peer.rank), who(cards, own));
    } else if (peer.addresses.empty()) {
      text += fmt::format("{} knows no address of {}", who(cards, own), who(cards, peer.rank));
    } else {
      text += fmt::format("{} cannot reach {} at {}", who(cards, own), who(cards, peer.rank),
                          peer.failure);
    }
  }
  return text;
}

// All ranks throw it, with the same words: first of those who called, as they know why.
void agree_on_failures(Communicator& world, const std::string& own) {
  const auto texts = all_gather(world, own);
  const auto first = std::ranges::find_if(texts, [](const auto& text) { return !text.empty(); });
  if (first == texts.end()) return;
  std::vector<std::string> failures;
  for (const std::string& text : texts) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) failures.push_back(line);
  }
  std::stable_partition(failures.begin(), failures.end(), [](const std::string& failure) {
    return failure.find(" has not called ") == std::string::npos;
  });
  std::string message = "the hosts cannot talk by TCP: ";
  for (size_t i = 0; i < std::min(failures.size(), kMaxFailuresTold); ++i) {
    message += (i == 0 ? "" : "; ") + failures[i];
  }
  if (failures.size() > kMaxFailuresTold) {
    message += fmt::format("; and {} more", failures.size() - kMaxFailuresTold);
  }
  message +=
      "; name the network between them with `mpirun --mca btl_tcp_if_include NETWORK`, or let a "
      "firewall pass it";
  throw AgreedError(message, ExitCode::kFailure, static_cast<int>(first - texts.begin()));
}

// To one peer, and from it.
class Link {
 public:
  explicit Link(Socket socket) : socket_(std::move(socket)) {}
  // Says that no more will come, and takes what has: closing a connection with something unread
  // would take back what was sent last.
  ~Link() {
    flush();
    shutdown(socket_.fd(), SHUT_WR);
    std::array<std::byte, 4096> rest;
    for (int i = 0; i < kReadsAtOnce && receive_some(socket_, rest).bytes > 0; ++i) {
    }
  }
  Link(Link&&) = default;
  Link& operator=(Link&&) = default;

  // One frame is on its way and has to be finished; of those behind it only the newest counts.
  void send(const std::vector<std::byte>& frame) {
    next_ = frame;
    flush();
  }

  SideChannel::End receive(const FrameReader::Take& take) {
    flush();
    std::array<std::byte, 16384> bytes;
    for (int i = 0; i < kReadsAtOnce; ++i) {
      const Moved moved = receive_some(socket_, bytes);
      if (moved.ended || moved.error != 0) return end_of(error_ != 0 ? error_ : moved.error);
      if (moved.bytes == 0) break;
      if (!reader_.read(std::span(bytes).first(moved.bytes), take)) {
        return SideChannel::End::kGarbage;
      }
    }
    return SideChannel::End::kNone;
  }

 private:
  static SideChannel::End end_of(int error) {
    return error == 0 || error == ECONNRESET || error == EPIPE ? SideChannel::End::kClosed
                                                               : SideChannel::End::kLost;
  }

  // The system tells an error once, and to whom it likes: receiving then shows an end alone.
  void flush() {
    while (true) {
      if (sent_ == current_.size()) {
        current_ = std::exchange(next_, {});
        sent_ = 0;
      }
      if (current_.empty()) return;
      const Moved moved = send_some(socket_, std::span(current_).subspan(sent_));
      if (moved.error != 0) error_ = moved.error;
      if (moved.bytes == 0) return;
      sent_ += moved.bytes;
    }
  }

  Socket socket_;
  FrameReader reader_;
  std::vector<std::byte> current_;
  size_t sent_ = 0;  // of the current frame
  std::vector<std::byte> next_;
  int error_ = 0;  // of sending
};

}  // namespace

struct SideChannel::State {
  std::vector<Peer> peers;
  std::vector<Link> links;  // by peer
};

SideChannel::SideChannel(Communicator& world, double seconds) : state_(std::make_unique<State>()) {
  const Placement& place = world.placement();
  if (place.hosts == 1) return;
  const std::vector<Listener> listeners = listen_everywhere();
  const Secret secret = share_secret(world);
  Card own = {place.host, place.local_rank, this_machine(), place.host_name, {}};
  for (const Listener& listener : listeners) own.addresses.push_back(listener.address);
  std::vector<Card> cards;
  for (const std::string& text : all_gather(world, write(own))) cards.push_back(read_card(text));

  std::vector<Acquaintance> acquaintances;
  for (int rank = 0; rank < place.ranks; ++rank) {
    const Card& card = cards[rank];
    if (card.host == place.host || card.local_rank != place.local_rank) continue;
    acquaintances.push_back({.rank = rank, .addresses = {}});
    if (rank < place.rank) acquaintances.back().addresses = ways_to(card, own.machine);
    state_->peers.push_back({.rank = rank, .host = card.host});
  }
  connect_all(place.rank, listeners, secret, seconds, acquaintances);
  agree_on_failures(world, describe_failures(cards, place.rank, acquaintances));
  for (Acquaintance& each : acquaintances) state_->links.emplace_back(std::move(each.socket));
}

SideChannel::~SideChannel() = default;

const std::vector<SideChannel::Peer>& SideChannel::peers() const { return state_->peers; }

void SideChannel::send(std::span<const std::byte> message) {
  const std::vector<std::byte> frame = make_frame(message);
  for (size_t i = 0; i < state_->links.size(); ++i) {
    if (state_->peers[i].end == End::kNone) state_->links[i].send(frame);
  }
}

void SideChannel::receive(
    const std::function<void(int rank, std::span<const std::byte> message)>& take) {
  for (size_t i = 0; i < state_->links.size(); ++i) {
    Peer& peer = state_->peers[i];
    if (peer.end != End::kNone) continue;
    peer.end = state_->links[i].receive(
        [&](std::span<const std::byte> message) { take(peer.rank, message); });
  }
}

}  // namespace trireme::comm
