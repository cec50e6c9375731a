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
// An address that has not answered after this is given company.
constexpr auto kPatience = std::chrono::milliseconds(500);
// Those who have called and not yet shown the secret. A peer shows it at once, so the oldest are
// strangers.
constexpr size_t kMaxGuests = 128;

// The first words of a connection.
struct Hello {
  std::array<std::byte, kHalf> secret;
  int32_t from;
  int32_t to;
};
static_assert(sizeof(Hello) == kHalf + 8);
using Answer = std::array<std::byte, kHalf>;

// In a time that does not tell where they differ.
bool same_secret(std::span<const std::byte> a, std::span<const std::byte> b) {
  volatile unsigned difference = 0;
  for (size_t i = 0; i < kHalf; ++i) {
    difference = difference | std::to_integer<unsigned>(a[i] ^ b[i]);
  }
  return difference == 0;
}

// What a peer sends first, of a known size, as it comes.
template <class Words>
struct Greeting {
  std::array<std::byte, sizeof(Words)> bytes;
  size_t count = 0;

  // Takes what is there; an error where the peer has gone.
  int read(const Socket& socket) {
    const Moved moved = receive_some(socket, std::span(bytes).subspan(count));
    count += moved.bytes;
    return moved.ended ? ECONNRESET : moved.error;
  }
  bool complete() const { return count == sizeof(Words); }
  Words words() const {
    Words words;
    std::memcpy(&words, bytes.data(), sizeof words);
    return words;
  }
};

class Mesh {
 public:
  Mesh(int own_rank, const std::vector<Listener>& listeners, const Secret& secret,
       std::vector<Acquaintance>& peers)
      : own_rank_(own_rank), listeners_(listeners), secret_(secret), peers_(peers) {
    for (Acquaintance& peer : peers_) {
      if (!peer.addresses.empty()) searches_.push_back({.peer = &peer});
    }
  }

  void run(Clock::time_point deadline) {
    while (!complete() && Clock::now() < deadline) {
      for (Search& search : searches_) advance(search);
      if (complete()) break;
      wait();
      for (const Listener& listener : listeners_) admit(listener);
      std::erase_if(guests_, [&](Guest& guest) { return greet(guest); });
    }
    for (const Search& search : searches_) explain(search);
  }

 private:
  // Someone who has called.
  struct Guest {
    Socket socket;
    Greeting<Hello> hello;
  };
  // A peer that is called, at one address or several.
  struct Call {
    Socket socket;
    bool said_hello = false;
    Greeting<Answer> answer = {};
    int error = 0;
  };
  struct Search {
    Acquaintance* peer;
    std::vector<Call> calls = {};  // by address
    Clock::time_point patience = {};
  };

  bool complete() const {
    return std::ranges::all_of(peers_, [](const auto& peer) { return bool(peer.socket); });
  }

  void advance(Search& search) {
    if (search.peer->socket) return;
    for (Call& call : search.calls) {
      if (call.error == 0 && advance(call, search.peer->rank)) {
        search.peer->socket = std::move(call.socket);
        search.calls.clear();
        return;
      }
    }
    const bool waiting =
        std::ranges::any_of(search.calls, [](const Call& call) { return call.error == 0; });
    const auto now = Clock::now();
    if (search.calls.size() == search.peer->addresses.size() ||
        (waiting && now < search.patience)) {
      return;
    }
    Call call{connect_to(search.peer->addresses[search.calls.size()])};
    if (!call.socket) call.error = errno;
    search.calls.push_back(std::move(call));
    search.patience = now + kPatience;
  }

  // Whether the peer has answered.
  bool advance(Call& call, int rank) {
    if (!call.said_hello) {
      Hello hello = {.secret = {}, .from = own_rank_, .to = rank};
      std::copy_n(secret_.begin(), kHalf, hello.secret.begin());
      const Moved moved = send_some(call.socket, std::as_bytes(std::span(&hello, 1)));
      call.said_hello = moved.bytes > 0;  // so little goes whole or not at all
      call.error = moved.error;
    }
    if (!call.said_hello || call.error != 0) return false;
    call.error = call.answer.read(call.socket);
    if (!call.answer.complete()) return false;
    const Answer answer = call.answer.words();
    if (same_secret(answer, std::span(secret_).subspan(kHalf))) return true;
    call.error = EPROTO;
    return false;
  }

  void admit(const Listener& listener) {
    while (Socket socket = accept_from(listener.socket)) {
      guests_.push_back({std::move(socket), {}});
      if (guests_.size() > kMaxGuests) guests_.pop_front();
    }
  }

  // Whether it is a guest no longer.
  bool greet(Guest& guest) {
    const int error = guest.hello.read(guest.socket);
    if (!guest.hello.complete()) return error != 0;
    const Hello hello = guest.hello.words();
    if (!same_secret(hello.secret, secret_) || hello.to != own_rank_) return true;
    const auto peer = std::ranges::find(peers_, hello.from, &Acquaintance::rank);
    if (peer == peers_.end() || !peer->addresses.empty() || peer->socket) return true;
    if (send_some(guest.socket, std::span(secret_).subspan(kHalf)).bytes == kHalf) {
      peer->socket = std::move(guest.socket);
    }
    return true;
  }

  // Until something has come or it is time for another call.
  void wait() const {
    std::vector<pollfd> awaited;
    for (const Listener& listener : listeners_)
      awaited.push_back({listener.socket.fd(), POLLIN, 0});
    for (const Guest& guest : guests_) awaited.push_back({guest.socket.fd(), POLLIN, 0});
    for (const Search& search : searches_) {
      for (const Call& call : search.calls) {
        const auto event = static_cast<short>(call.said_hello ? POLLIN : POLLOUT);
        if (call.error == 0) awaited.push_back({call.socket.fd(), event, 0});
      }
    }
    poll(awaited.data(), awaited.size(), /*milliseconds=*/50);
  }

  static void explain(const Search& search) {
    if (search.peer->socket) return;
    for (size_t i = 0; i < search.peer->addresses.size(); ++i) {
      const int error = i < search.calls.size() ? search.calls[i].error : 0;
      search.peer->failure +=
          fmt::format("{}{} ({})", i == 0 ? "" : ", ", search.peer->addresses[i].text(),
                      error == 0 ? "no answer" : std::strerror(error));
    }
  }

  const int own_rank_;
  const std::vector<Listener>& listeners_;
  const Secret& secret_;
  std::vector<Acquaintance>& peers_;
  std::vector<Search> searches_;
  std::deque<Guest> guests_;
};

}  // namespace

void connect_all(int own_rank, const std::vector<Listener>& listeners, const Secret& secret,
                 double seconds, std::vector<Acquaintance>& peers) {
  const auto bound =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  Mesh(own_rank, listeners, secret, peers).run(Clock::now() + bound);
}

}  // namespace trireme::comm
