// Tells whether processes of this host still live, so that waiting for a dead one ends.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace trireme::comm::mpi {

// A process as its peers on the same host can find it.
struct Peer {
  int rank = 0;
  pid_t pid = 0;
  uint64_t pid_namespace = 0;  // a pid means nothing in another one
};
Peer this_peer(int rank);

class PeerWatch {
 public:
  // Watches those peers that can be seen from here; where none can (containers of their own, old
  // kernels) a dead peer is left to the launcher, which ends the job.
  explicit PeerWatch(const std::vector<Peer>& peers);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // One of the peers that has ended, or null.
  const Peer* find_ended() const;
  // By which to wait for the rank's end (it is readable then) and to signal it; -1 where it cannot
  // be seen from here.
  int descriptor(int rank) const;

 private:
  struct Watched {
    Peer peer;
    int fd;
  };
  std::vector<Watched> watched_;
};

}  // namespace trireme::comm::mpi
