#include "comm/watchdog/mesh.h"

#include <fmt/format.h>
#include <poll.h>
#include <sodium.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>

#include "core/error.h"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;

// If an address has not answered after this time, the next one is tried too. An address that has
// failed is tried again after it.
constexpr auto kNextTryDelay = std::chrono::milliseconds(500);
// Max number of accepted connections that have not yet proved that they know the key. Beyond it, a
// random one is closed: under a flood of connections, a peer then gets in after a few tries.
constexpr size_t kMaxPending = 128;
constexpr int kAcceptedAtOnce = 32;  // the rest is accepted after the pending ones have been read

using Nonce = std::array<unsigned char, 32>;
using Proof = std::array<unsigned char, crypto_auth_BYTES>;
static_assert(std::tuple_size_v<Key> == crypto_auth_KEYBYTES);

// The first message on a connection, sent by the connecting side.
struct Hello {
  int32_t from;
  int32_t to;
  Nonce nonce;
};
// What a side proves to know the key with. Contains the side so that a proof cannot be sent back.
struct Proven {
  enum Side : int32_t { kConnecting, kAccepting } side;
  Hello hello;
  Nonce challenge;
};
static_assert(sizeof(Proven) == 4 + 8 + 2 * sizeof(Nonce), "padding would be part of the hash");

void initialize_sodium() {
  if (sodium_init() < 0) throw CommError("libsodium cannot be initialized");
}

Nonce random_nonce() {
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

Proof prove(const Proven& proven, const Key& key) {
  Proof proof;
  crypto_auth(proof.data(), reinterpret_cast<const unsigned char*>(&proven), sizeof proven,
              key.data());
  return proof;
}

// Compares in constant time.
bool proves(const Proof& proof, const Proven& proven, const Key& key) {
  return crypto_auth_verify(proof.data(), reinterpret_cast<const unsigned char*>(&proven),
                            sizeof proven, key.data()) == 0;
}

// Receives a message of fixed size in pieces.
template <class Content>
struct Incoming {
  std::array<std::byte, sizeof(Content)> bytes;
  size_t count = 0;

  // Reads the available bytes. Returns an errno value if the connection has failed or is closed.
  int read(const Socket& socket) {
    if (complete()) return 0;
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

// Sends a message of at most some hundred bytes as the next one on a new connection, whose buffer
// takes it completely or, before the connection is established, not at all.
template <class Content>
Transfer send_message(const Socket& socket, const Content& content) {
  return send_some(socket, std::as_bytes(std::span(&content, 1)));
}

class Mesh {
 public:
  Mesh(int own_rank, const std::vector<Listener>& listeners, const Key& key,
       std::vector<MeshPeer>& peers)
      : own_rank_(own_rank), listeners_(listeners), key_(key), peers_(peers) {
    initialize_sodium();
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
  // An accepted connection whose peer has not yet proved that it knows the key.
  struct Pending {
    Socket socket;
    Incoming<Hello> hello = {};
    std::optional<Nonce> challenge = {};  // once it is sent
    Incoming<Proof> proof = {};
  };
  // The tries to connect to one address.
  struct Attempt {
    Socket socket = {};  // null if the last try has failed
    Hello hello = {};
    bool hello_sent = false;
    Incoming<Nonce> challenge = {};
    bool proof_sent = false;
    Incoming<Proof> proof = {};
    int error = 0;  // why the last try that has ended failed, as an errno value
    Clock::time_point next_try = {};
  };
  // A peer to connect to.
  struct Target {
    MeshPeer* peer;
    std::vector<Attempt> attempts = {};  // by address
    Clock::time_point next_address = {};
  };

  bool complete() const {
    return std::ranges::all_of(peers_, [](const auto& peer) { return bool(peer.socket); });
  }

  void advance(Target& target) {
    MeshPeer& peer = *target.peer;
    if (peer.socket) return;
    const auto now = Clock::now();
    for (size_t i = 0; i < target.attempts.size(); ++i) {
      Attempt& attempt = target.attempts[i];
      if (!attempt.socket && now >= attempt.next_try) start(attempt, peer, i);
      if (attempt.socket && advance(attempt)) {
        peer.socket = std::move(attempt.socket);
        target.attempts.clear();
        return;
      }
    }
    const bool waiting = std::ranges::any_of(
        target.attempts, [](const Attempt& attempt) { return bool(attempt.socket); });
    if (target.attempts.size() == peer.addresses.size() || (waiting && now < target.next_address)) {
      return;
    }
    target.attempts.emplace_back();
    start(target.attempts.back(), peer, target.attempts.size() - 1);
    target.next_address = now + kNextTryDelay;
  }

  void start(Attempt& attempt, const MeshPeer& peer, size_t address) const {
    const int last_error = attempt.error;
    attempt = {.socket = connect_to(peer.addresses[address]),
               .hello = {own_rank_, peer.rank, random_nonce()},
               .error = last_error};
    if (!attempt.socket) fail(attempt, errno);
  }

  static void fail(Attempt& attempt, int error) {
    attempt.socket = Socket();
    attempt.error = error;
    attempt.next_try = Clock::now() + kNextTryDelay;
  }

  // Returns true if the peer has proved that it knows the key.
  bool advance(Attempt& attempt) const {
    if (!attempt.hello_sent) {
      const Transfer sent = send_message(attempt.socket, attempt.hello);
      attempt.hello_sent = sent.bytes > 0;
      if (sent.error != 0) fail(attempt, sent.error);
      if (!attempt.hello_sent) return false;
    }
    if (const int error = attempt.challenge.read(attempt.socket); error != 0) fail(attempt, error);
    if (!attempt.socket || !attempt.challenge.complete()) return false;
    Proven proven = {Proven::kConnecting, attempt.hello, attempt.challenge.content()};
    if (!attempt.proof_sent) {
      const Transfer sent = send_message(attempt.socket, prove(proven, key_));
      attempt.proof_sent = true;
      if (sent.bytes == 0) fail(attempt, sent.error);
      if (!attempt.socket) return false;
    }
    const int error = attempt.proof.read(attempt.socket);
    if (!attempt.proof.complete()) {
      if (error != 0) fail(attempt, error);
      return false;
    }
    proven.side = Proven::kAccepting;
    if (proves(attempt.proof.content(), proven, key_)) return true;
    fail(attempt, EPROTO);
    return false;
  }

  void accept_pending(const Listener& listener) {
    for (int i = 0; i < kAcceptedAtOnce; ++i) {
      Socket socket = accept_from(listener.socket);
      if (!socket) return;
      if (pending_.size() == kMaxPending) {
        pending_[randombytes_uniform(kMaxPending)] = {std::move(socket)};
      } else {
        pending_.push_back({std::move(socket)});
      }
    }
  }

  // Answers a peer and checks its proof. Returns true if the connection is no longer pending.
  bool identify(Pending& pending) {
    if (!pending.challenge) {
      const int error = pending.hello.read(pending.socket);
      if (!pending.hello.complete()) return error != 0;
      const Hello hello = pending.hello.content();
      if (hello.to != own_rank_ || !awaited(hello.from)) return true;
      pending.challenge = random_nonce();
      return send_message(pending.socket, *pending.challenge).bytes != sizeof(Nonce);
    }
    const int error = pending.proof.read(pending.socket);
    if (!pending.proof.complete()) return error != 0;
    Proven proven = {Proven::kConnecting, pending.hello.content(), *pending.challenge};
    MeshPeer* peer = awaited(proven.hello.from);
    if (!peer || !proves(pending.proof.content(), proven, key_)) return true;
    proven.side = Proven::kAccepting;
    const Proof answer = prove(proven, key_);
    if (send_message(pending.socket, answer).bytes == answer.size()) {
      peer->socket = std::move(pending.socket);
    }
    return true;
  }

  // Returns the peer of this rank that has yet to connect to this one, or null.
  MeshPeer* awaited(int rank) const {
    const auto peer = std::ranges::find(peers_, rank, &MeshPeer::rank);
    const bool expected = peer != peers_.end() && peer->addresses.empty() && !peer->socket;
    return expected ? &*peer : nullptr;
  }

  // Waits until a socket is ready, but not longer than 50 ms.
  void wait() const {
    std::vector<pollfd> polled;
    for (const Listener& listener : listeners_) polled.push_back({listener.socket.fd(), POLLIN, 0});
    for (const Pending& pending : pending_) polled.push_back({pending.socket.fd(), POLLIN, 0});
    for (const Target& target : targets_) {
      for (const Attempt& attempt : target.attempts) {
        const auto event = static_cast<short>(attempt.hello_sent ? POLLIN : POLLOUT);
        if (attempt.socket) polled.push_back({attempt.socket.fd(), event, 0});
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
  const Key& key_;
  std::vector<MeshPeer>& peers_;
  std::vector<Target> targets_;
  std::vector<Pending> pending_;
};

}  // namespace

Key generate_key() {
  initialize_sodium();
  Key key;
  randombytes_buf(key.data(), key.size());
  return key;
}

void connect_all(int own_rank, const std::vector<Listener>& listeners, const Key& key,
                 double seconds, std::vector<MeshPeer>& peers) {
  const auto bound =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  Mesh(own_rank, listeners, key, peers).run(Clock::now() + bound);
}

}  // namespace trireme::comm
