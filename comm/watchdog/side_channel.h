// Messages between hosts that pass even while MPI and NCCL are stuck: TCP connections of their own,
// made at the start over the addresses that MPI uses too.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace trireme {

// Rank i of each host is connected to rank i of every other host that has one, so any one surviving
// pair of ranks keeps two hosts in touch, and a rank holds at most one connection for each host.
// For one thread to use, after the constructor.
class SideChannel {
 public:
  // All ranks call it together; returns when all connections are made. With one host there are
  // none. Connections are accepted only from processes that know the run's secret, which rank 0
  // draws and MPI hands out: it keeps strangers and other runs away, not those who can read the
  // network. Throws CommError, on all ranks alike, naming the hosts that cannot reach one another
  // and the addresses that were tried.
  explicit SideChannel(Communicator& world);
  ~SideChannel();
  SideChannel(const SideChannel&) = delete;
  SideChannel& operator=(const SideChannel&) = delete;

  struct Peer {
    int rank = 0;
    int host = 0;         // Placement::host
    bool closed = false;  // its process has ended or closed the connection
  };
  const std::vector<Peer>& peers() const;

  // To all peers. Never blocks: what a peer does not take in time is left out, as the next message
  // says all again.
  void send(std::span<const std::byte> message);
  // Hands over whole messages that have come since, by rank of the sender. Never blocks. A peer
  // that sends what is no message is closed.
  void receive(const std::function<void(int rank, std::span<const std::byte> message)>& take);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme
