#include "comm/watchdog/side_channel.h"

#include <fmt/format.h>
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

// Max number of reads from one peer per call; the rest is read in the next call.
constexpr int kReadsAtOnce = 64;
constexpr size_t kMaxFailuresReported = 4;

// How to reach a rank. The ranks exchange it before they are connected.
struct Contact {
  int host = 0;
  int local_rank = 0;
  std::string machine;  // see this_machine(); empty if unknown
  std::string host_name;
  std::vector<Address> addresses;
};

// Returns an id that is equal for processes that can connect by loopback, even if their host names
// differ.
std::string this_machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  struct stat network = {};
  if (!(file >> boot) || stat("/proc/self/ns/net", &network) != 0) return {};
  return fmt::format("{}/{}", boot, network.st_ino);
}

std::string to_text(const Contact& contact) {
  std::string text = fmt::format("{}\n{}\n{}\n{}\n", contact.host, contact.local_rank,
                                 contact.machine, contact.host_name);
  for (const Address& address : contact.addresses) text += address.text() + '\n';
  return text;
}

Contact parse_contact(const std::string& text) {
  std::istringstream lines(text);
  const auto line = [&] {
    std::string words;
    std::getline(lines, words);
    return words;
  };
  Contact contact;
  contact.host = std::stoi(line());
  contact.local_rank = std::stoi(line());
  contact.machine = line();
  contact.host_name = line();
  for (std::string words = line(); !words.empty(); words = line()) {
    if (const auto address = Address::parse(words)) contact.addresses.push_back(*address);
  }
  return contact;
}

// Returns the addresses at which processes of `from_machine` can reach the rank, best first.
std::vector<Address> addresses_for(const Contact& contact, const std::string& from_machine) {
  std::vector<Address> addresses = contact.addresses;
  if (!contact.machine.empty() && contact.machine == from_machine) {
    std::stable_partition(addresses.begin(), addresses.end(), std::mem_fn(&Address::loopback));
  } else {
    std::erase_if(addresses, std::mem_fn(&Address::loopback));
  }
  return addresses;
}

std::vector<Listener> listen_everywhere() {
  std::vector<Listener> listeners;
  for (const Address& address : local_addresses()) {
    if (auto listener = listen_on(address)) listeners.push_back(std::move(*listener));
  }
  return listeners;
}

Key share_key(Communicator& world) {
  Key key = world.rank() == 0 ? generate_key() : Key();
  const std::string text =
      broadcast(world, std::string(reinterpret_cast<const char*>(key.data()), key.size()), 0);
  std::memcpy(key.data(), text.data(), key.size());
  return key;
}

std::string describe_rank(const std::vector<Contact>& contacts, int rank) {
  return fmt::format("rank {} (host {})", rank, contacts[rank].host_name);
}

constexpr const char* kNeverConnected = " never connected to ";

// Describes the peers that this rank is not connected to, one per line.
std::string describe_failures(const std::vector<Contact>& contacts, int own,
                              const std::vector<MeshPeer>& peers) {
  std::string text;
  for (const MeshPeer& peer : peers) {
    if (peer.socket) continue;
    text += text.empty() ? "" : "\n";
    const std::string self = describe_rank(contacts, own);
    const std::string other = describe_rank(contacts, peer.rank);
    if (peer.rank > own) {
      text += other + kNeverConnected + self;
    } else if (peer.addresses.empty()) {
      text += fmt::format("{} has no address for {}", self, other);
    } else {
      text += fmt::format("{} cannot reach {} at {}", self, other, peer.failure);
    }
  }
  return text;
}

// Throws the same AgreedError on all ranks if there are failures. It lists those of connecting
// ranks first, since they know the reason.
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
    return failure.find(kNeverConnected) == std::string::npos;
  });
  std::string message = "the hosts cannot connect to each other by TCP: ";
  for (size_t i = 0; i < std::min(failures.size(), kMaxFailuresReported); ++i) {
    message += (i == 0 ? "" : "; ") + failures[i];
  }
  if (failures.size() > kMaxFailuresReported) {
    message += fmt::format("; and {} more", failures.size() - kMaxFailuresReported);
  }
  message +=
      "; select the network between them with `mpirun --mca btl_tcp_if_include NETWORK`, or open "
      "the firewall between them";
  throw AgreedError(message, ExitCode::kFailure, static_cast<int>(first - texts.begin()));
}

// The connection to one peer.
class Link {
 public:
  explicit Link(Socket socket) : socket_(std::move(socket)) {}
  // Announces the end and reads what has arrived: closing a connection with unread bytes would
  // reset it and discard the last message sent.
  ~Link() {
    flush();
    shutdown(socket_.fd(), SHUT_WR);
    std::array<std::byte, 4096> rest;
    for (int i = 0; i < kReadsAtOnce && receive_some(socket_, rest).bytes > 0; ++i) {
    }
  }
  Link(Link&&) = default;
  Link& operator=(Link&&) = default;

  // Completes the frame that is partly sent, if any, then sends the newest one.
  void send(const std::vector<std::byte>& frame) {
    next_ = frame;
    flush();
  }

  SideChannel::End receive(const FrameReader::Handler& handler) {
    flush();
    std::array<std::byte, 16384> bytes;
    for (int i = 0; i < kReadsAtOnce; ++i) {
      const Transfer transfer = receive_some(socket_, bytes);
      if (transfer.ended || transfer.error != 0) {
        return end_of(error_ != 0 ? error_ : transfer.error);
      }
      if (transfer.bytes == 0) break;
      if (!reader_.read(std::span(bytes).first(transfer.bytes), handler)) {
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

  // Stores the error of sending, since the system reports an error only once: receiving would then
  // only find that the connection has ended.
  void flush() {
    while (true) {
      if (sent_ == current_.size()) {
        current_ = std::exchange(next_, {});
        sent_ = 0;
      }
      if (current_.empty()) return;
      const Transfer transfer = send_some(socket_, std::span(current_).subspan(sent_));
      if (transfer.error != 0) error_ = transfer.error;
      if (transfer.bytes == 0) return;
      sent_ += transfer.bytes;
    }
  }

  Socket socket_;
  FrameReader reader_;
  std::vector<std::byte> current_;
  size_t sent_ = 0;  // bytes of the current frame
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
  const Key key = share_key(world);
  Contact own = {place.host, place.local_rank, this_machine(), place.host_name, {}};
  for (const Listener& listener : listeners) own.addresses.push_back(listener.address);
  std::vector<Contact> contacts;
  for (const std::string& text : all_gather(world, to_text(own))) {
    contacts.push_back(parse_contact(text));
  }

  std::vector<MeshPeer> mesh_peers;
  for (int rank = 0; rank < place.ranks; ++rank) {
    const Contact& contact = contacts[rank];
    if (contact.host == place.host || contact.local_rank != place.local_rank) continue;
    mesh_peers.push_back({.rank = rank, .addresses = {}});
    if (rank < place.rank) mesh_peers.back().addresses = addresses_for(contact, own.machine);
    state_->peers.push_back({.rank = rank, .host = contact.host});
  }
  connect_all(place.rank, listeners, key, seconds, mesh_peers);
  agree_on_failures(world, describe_failures(contacts, place.rank, mesh_peers));
  for (MeshPeer& each : mesh_peers) state_->links.emplace_back(std::move(each.socket));
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
    const std::function<void(int rank, std::span<const std::byte> message)>& handler) {
  for (size_t i = 0; i < state_->links.size(); ++i) {
    Peer& peer = state_->peers[i];
    if (peer.end != End::kNone) continue;
    peer.end = state_->links[i].receive(
        [&](std::span<const std::byte> message) { handler(peer.rank, message); });
  }
}

}  // namespace trireme::comm
