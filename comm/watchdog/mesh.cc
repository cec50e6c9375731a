#include "comm/watchdog/mesh.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kHalf = std::tuple_size_v<Secret> / 2;
// If an address has not answered after this time, the next one is tried too.
constexpr auto kNextAddressDelay = std::chrono::milliseconds(500);
// Max number of accepted connections that have not yet sent the secret. Beyond it, the oldest are
// closed: a peer sends the secret at once.
constexpr size_t kMaxPending = 128;

// The first message on a connection, sent by the connecting side.
struct Hello {
  std::array<std::byte, kHalf> secret;
  int32_t from;
  int32_t to;
};
static_assert(sizeof(Hello) == kHalf + 8);
using Answer = std::array<std::byte, kHalf>;

// Compares in constant time.
bool same_secret(std::span<const std::byte> a, std::span<const std::byte> b) {
  volatile unsigned difference = 0;
  for (size_t i = 0; i < kHalf; ++i) {
    difference = difference | std::to_integer<unsigned>(a[i] ^ b[i]);
  }
  return difference == 0;
}

// Receives a message of fixed size in pieces.
template <class Content>
struct Incoming {
  std::array<std::byte, sizeof(Content)> bytes;
  size_t count = 0;

  // Reads the available bytes. Returns an errno value if the connection has failed or is closed.
  int read(const Socket& socket) {
    const Transfer transfer = receive_some(socket, std::span(bytes).subspan(count));
    count += transfer.bytes;
    return transfer.ended ? ECONNRESET : transfer.error;
  }
  bool complete() const { return count == sizeof(Content); }
  Content content() const {
    Content result;
    std::memcpy(&result, bytes.data(), sizeof result);
    return result;
  }
};

class Mesh {
 public:
  Mesh(int own_rank, const std::vector<Listener>& listeners, const Secret& secret,
       std::vector<MeshPeer>& peers)
      : own_rank_(own_rank), listeners_(listeners), secret_(secret), peers_(peers) {
    for (MeshPeer& peer : peers_) {
      if (!peer.addresses.empty()) targets_.push_back({.peer = &peer});
    }
  }

  void run(Clock::time_point deadline) {
    while (!complete() && Clock::now() < deadline) {
      for (Target& target : targets_) advance(target);
      if (complete()) break;
      wait();
      for (const Listener& listener : listeners_) accept_pending(listener);
      std::erase_if(pending_, [&](Pending& pending) { return identify(pending); });
    }
    for (const Target& target : targets_) explain(target);
  }

 private:
  // An accepted connection from which no complete Hello has arrived.
  struct Pending {
    Socket socket;
    Incoming<Hello> hello;
  };
  // An attempt to connect to one address.
  struct Attempt {
    Socket socket;
    bool hello_sent = false;
    Incoming<Answer> answer = {};
    int error = 0;
  };
  // A peer to connect to.
  struct Target {
    MeshPeer* peer;
    std::vector<Attempt> attempts = {};  // by address
    Clock::time_point next_attempt = {};
  };

  bool complete() const {
    return std::ranges::all_of(peers_, [](const auto& peer) { return bool(peer.socket); });
  }

  void advance(Target& target) {
    if (target.peer->socket) return;
    for (Attempt& attempt : target.attempts) {
      if (attempt.error == 0 && advance(attempt, target.peer->rank)) {
        target.peer->socket = std::move(attempt.socket);
        target.attempts.clear();
        return;
      }
    }
    const bool waiting = std::ranges::any_of(
        target.attempts, [](const Attempt& attempt) { return attempt.error == 0; });
    const auto now = Clock::now();
    if (target.attempts.size() == target.peer->addresses.size() ||
        (waiting && now < target.next_attempt)) {
      return;
    }
    Attempt next{connect_to(target.peer->addresses[target.attempts.size()])};
    if (!next.socket) next.error = errno;
    target.attempts.push_back(std::move(next));
    target.next_attempt = now + kNextAddressDelay;
  }

  // Returns true if the peer has answered.
  bool advance(Attempt& attempt, int rank) {
    if (!attempt.hello_sent) {
      Hello hello = {.secret = {}, .from = own_rank_, .to = rank};
      std::copy_n(secret_.begin(), kHalf, hello.secret.begin());
      const Transfer sent = send_some(attempt.socket, std::as_bytes(std::span(&hello, 1)));
      attempt.hello_sent = sent.bytes > 0;  // a message this small is sent completely or not at all
      attempt.error = sent.error;
    }
    if (!attempt.hello_sent || attempt.error != 0) return false;
    attempt.error = attempt.answer.read(attempt.socket);
    if (!attempt.answer.complete()) return false;
    const Answer answer = attempt.answer.content();
    if (same_secret(answer, std::span(secret_).subspan(kHalf))) return true;
    attempt.error = EPROTO;
    return false;
  }

  void accept_pending(const Listener& listener) {
    while (Socket socket = accept_from(listener.socket)) {
      pending_.push_back({std::move(socket), {}});
      if (pending_.size() > kMaxPending) pending_.pop_front();
    }
  }

  // Answers a peer that has sent the secret. Returns true if the connection is no longer pending.
  bool identify(Pending& pending) {
    const int error = pending.hello.read(pending.socket);
    if (!pending.hello.complete()) return error != 0;
    const Hello hello = pending.hello.content();
    if (!same_secret(hello.secret, secret_) || hello.to != own_rank_) return true;
    const auto peer = std::ranges::find(peers_, hello.from, &MeshPeer::rank);
    if (peer == peers_.end() || !peer->addresses.empty() || peer->socket) return true;
    if (send_some(pending.socket, std::span(secret_).subspan(kHalf)).bytes == kHalf) {
      peer->socket = std::move(pending.socket);
    }
    return true;
  }

  // Waits until a socket is ready, but not longer than 50 ms.
  void wait() const {
    std::vector<pollfd> polled;
    for (const Listener& listener : listeners_) polled.push_back({listener.socket.fd(), POLLIN, 0});
    for (const Pending& pending : pending_) polled.push_back({pending.socket.fd(), POLLIN, 0});
    for (const Target& target : targets_) {
      for (const Attempt& attempt : target.attempts) {
        const auto event = static_cast<short>(attempt.hello_sent ? POLLIN : POLLOUT);
        if (attempt.error == 0) polled.push_back({attempt.socket.fd(), event, 0});
      }
    }
    poll(polled.data(), polled.size(), /*milliseconds=*/50);
  }

  // Describes why the peer could not be connected.
  static void explain(const Target& target) {
    if (target.peer->socket) return;
    for (size_t i = 0; i < target.peer->addresses.size(); ++i) {
      const int error = i < target.attempts.size() ? target.attempts[i].error : 0;
      target.peer->failure +=
          fmt::format("{}{} ({})", i == 0 ? "" : ", ", target.peer->addresses[i].text(),
                      error == 0 ? "no answer" : std::strerror(error));
    }
  }

  const int own_rank_;
  const std::vector<Listener>& listeners_;
  const Secret& secret_;
  std::vector<MeshPeer>& peers_;
  std::vector<Target> targets_;
  std::deque<Pending> pending_;
};

}  // namespace

void connect_all(int own_rank, const std::vector<Listener>& listeners, const Secret& secret,
                 double seconds, std::vector<MeshPeer>& peers) {
  const auto bound =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  Mesh(own_rank, listeners, secret, peers).run(Clock::now() + bound);
}

}  // namespace trireme::comm
