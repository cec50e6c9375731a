// Establishes authenticated TCP connections between ranks.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "comm/watchdog/socket.h"

namespace trireme::comm {

// A secret that only the ranks of a run know. The connecting side sends the first half, the
// accepting side answers with the second half. An unrelated program that is contacted by mistake
// thus learns only the first half, which does not allow it to answer.
using Secret = std::array<std::byte, 64>;

struct MeshPeer {
  int rank = 0;
  std::vector<Address> addresses;  // empty if the peer connects to this rank
  // Results:
  Socket socket = {};        // null if the connection failed
  std::string failure = {};  // the reason
};

// Connects to all peers that have addresses, trying them in order, and accepts connections from the
// other peers at the listeners. Returns when all are connected, or after `seconds`.
void connect_all(int own_rank, const std::vector<Listener>& listeners, const Secret& secret,
                 double seconds, std::vector<MeshPeer>& peers);

}  // namespace trireme::comm
