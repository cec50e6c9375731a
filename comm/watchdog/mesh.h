// Establishes authenticated TCP connections between ranks.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "comm/watchdog/socket.h"

namespace trireme::comm {

// A key that only the ranks of a run know. It never crosses a connection: each side sends a random
// number and proves that it knows the key by a keyed hash (HMAC-SHA512-256) of both numbers and
// both ranks. A connection has these messages, the first from the connecting side:
//   hello: both ranks, number 1;  challenge: number 2;  proof;  proof of the accepting side.
// A program that is contacted by mistake, or records a connection, learns nothing that lets it
// connect. One that relays between two ranks can still change what they send later.
using Key = std::array<unsigned char, 32>;

// Returns a random key.
Key generate_key();

struct MeshPeer {
  int rank = 0;
  std::vector<Address> addresses;  // empty if the peer connects to this rank
  // Results:
  Socket socket = {};        // null if the connection failed
  std::string failure = {};  // the reason
};

// Connects to all peers that have addresses, trying them in order and again, and accepts
// connections from the other peers at the listeners. Returns when all are connected, or after
// `seconds`.
void connect_all(int own_rank, const std::vector<Listener>& listeners, const Key& key,
                 double seconds, std::vector<MeshPeer>& peers);

}  // namespace trireme::comm
