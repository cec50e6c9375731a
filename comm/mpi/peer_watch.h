// Detects the end of processes on this host, so that no rank waits forever for a dead one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace trireme::comm::mpi {

// Identifies the process of a rank for its peers on the same host.
struct Peer {
  int rank = 0;
  pid_t pid = 0;
  uint64_t pid_namespace = 0;  // the PID namespace in which `pid` is valid
};
Peer this_peer(int rank);

class PeerWatch {
 public:
  // Watches those peers whose processes are visible to this one. Others (in another container, or
  // on old kernels) are not watched; if they die, the launcher has to end the job.
  explicit PeerWatch(const std::vector<Peer>& peers);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // Returns a peer that has ended, or null.
  const Peer* find_ended() const;
  // Returns a pidfd of the rank's process, which becomes readable when the process ends and can be
  // used to signal it; -1 if the rank is not watched.
  int descriptor(int rank) const;

 private:
  struct Watched {
    Peer peer;
    int fd;
  };
  std::vector<Watched> watched_;
};

}  // namespace trireme::comm::mpi
