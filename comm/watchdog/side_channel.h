// Messages between hosts, over separate TCP connections so that they arrive even while MPI and NCCL
// are stuck. The connections are established at startup, on the network interfaces that MPI uses.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace trireme::comm {

// Local rank i of each host is connected to local rank i of every other host that has one. Two
// hosts thus stay connected as long as one such pair of ranks is alive, and a rank holds at most
// one connection per host. After construction, only one thread may use a side channel.
class SideChannel {
 public:
  // Returns when all connections are established; there are none with a single host. All ranks must
  // call it together. Uses the addresses of local_addresses() (see socket.h). Accepts connections
  // only from processes that know the run's key, which rank 0 generates and MPI distributes. This
  // keeps out other programs, runs and users, but not attackers who can change what the network
  // carries.
  // Throws AgreedError if connecting takes longer than `seconds`; the message names the hosts that
  // cannot reach each other and the addresses that were tried.
  explicit SideChannel(Communicator& world, double seconds = 30);
  // Messages sent before are still delivered.
  ~SideChannel();
  SideChannel(const SideChannel&) = delete;
  SideChannel& operator=(const SideChannel&) = delete;

  // The way in which a connection ended.
  enum class End {
    kNone,     // it is open
    kClosed,   // the peer's process has ended or has closed it
    kLost,     // the network dropped it; the peer's process may be running
    kGarbage,  // the peer sent something that is not a message
  };
  struct Peer {
    int rank = 0;
    int host = 0;  // Placement::host
    End end = End::kNone;
  };
  const std::vector<Peer>& peers() const;

  // Sends a message of at most kMaxMessageBytes (frames.h) to all peers. Never blocks: messages
  // that a peer does not receive in time are dropped in favor of the newest, since each message
  // contains the complete state.
  void send(std::span<const std::byte> message);
  // Calls `handler` with each message that has arrived completely and the rank of its sender, and
  // updates peers() for connections that have ended. Never blocks.
  void receive(const std::function<void(int rank, std::span<const std::byte> message)>& handler);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::comm
