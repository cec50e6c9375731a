// Messages between hosts that pass even while MPI and NCCL are stuck: TCP connections of their own,
// made at the start over the addresses that MPI uses too.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace trireme::comm {

// Rank i of each host is connected to rank i of every other host that has one, so any one surviving
// pair of ranks keeps two hosts in touch, and a rank holds at most one connection for each host.
// For one thread to use, after the constructor.
class SideChannel {
 public:
  // All ranks call it together; returns when all connections are made. With one host there are
  // none. The addresses are those of the interfaces that are up, narrowed by Open MPI's
  // btl_tcp_if_include and btl_tcp_if_exclude. Connections are accepted only from processes that
  // know the run's secret, which rank 0 draws and MPI hands out: it keeps strangers and other runs
  // away, not those who can read the network. Throws AgreedError when that takes more than
  // `seconds`, naming the hosts that cannot reach one another and the addresses that were tried.
  explicit SideChannel(Communicator& world, double seconds = 30);
  // What has been sent before still arrives.
  ~SideChannel();
  SideChannel(const SideChannel&) = delete;
  SideChannel& operator=(const SideChannel&) = delete;

  // The end of a connection.
  enum class End {
    kNone,
    kClosed,   // its process has ended, or has closed it
    kLost,     // the network has given up on it; the process may live
    kGarbage,  // what came is no message
  };
  struct Peer {
    int rank = 0;
    int host = 0;  // Placement::host
    End end = End::kNone;
  };
  const std::vector<Peer>& peers() const;

  // To all peers. Never blocks: what a peer does not take in time is left out, as the next message
  // says all again. At most kLongestMessage bytes (frames.h).
  void send(std::span<const std::byte> message);
  // Hands over whole messages that have come since, by rank of the sender, and notices connections
  // that have ended. Never blocks.
  void receive(const std::function<void(int rank, std::span<const std::byte> message)>& take);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::comm
