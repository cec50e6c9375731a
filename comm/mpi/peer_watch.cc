#include "comm/mpi/peer_watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/watchdog/process.h"

namespace trireme::comm::mpi {

Peer this_peer(int rank) { return {rank, getpid(), own_pid_namespace()}; }

PeerWatch::PeerWatch(const std::vector<Peer>& peers) {
  const Peer self = this_peer(0);
  watched_.reserve(peers.size());
  for (const Peer& peer : peers) {
    if (peer.pid == self.pid || peer.pid_namespace != self.pid_namespace) continue;
    const long fd = syscall(SYS_pidfd_open, peer.pid, 0);
    if (fd >= 0) watched_.push_back({peer, static_cast<int>(fd)});
  }
}

PeerWatch::~PeerWatch() {
  for (const Watched& watched : watched_) close(watched.fd);
}

const Peer* PeerWatch::find_ended() const {
  for (const Watched& watched : watched_) {
    pollfd poll_fd = {watched.fd, POLLIN, 0};
    if (poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & POLLIN)) return &watched.peer;
  }
  return nullptr;
}

int PeerWatch::descriptor(int rank) const {
  for (const Watched& watched : watched_) {
    if (watched.peer.rank == rank) return watched.fd;
  }
  return -1;
}

}  // namespace trireme::comm::mpi
