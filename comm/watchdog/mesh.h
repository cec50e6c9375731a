// Connects ranks by TCP, each to those that it names, and keeps strangers out.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "comm/watchdog/socket.h"

namespace trireme::comm {

// What the ranks of a run know and nobody else: who calls shows the first half, who is called
// answers with the second, so that calling a stranger does not let it in.
using Secret = std::array<std::byte, 64>;

struct Acquaintance {
  int rank = 0;
  std::vector<Address> addresses;  // to be called at; empty: it calls
  // What becomes of it:
  Socket socket = {};        // null: it could not be connected
  std::string failure = {};  // why
};

// For at most `seconds`: calls those that have addresses, one address after the other, and waits at
// the listeners for the others.
void connect_all(int own_rank, const std::vector<Listener>& listeners, const Secret& secret,
                 double seconds, std::vector<Acquaintance>& peers);

}  // namespace trireme::comm
