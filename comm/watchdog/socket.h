// The few things that the side channel needs of TCP.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace trireme::comm {

// Owns a descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// An IPv4 or IPv6 address with a port.
struct Address {
  sockaddr_storage storage = {};
  bool loopback = false;

  // "10.0.0.1:4242", "[fd00::1]:4242", and back; a text that is neither makes nothing of it.
  std::string text() const;
  static std::optional<Address> parse(const std::string& text);
  const sockaddr* pointer() const { return reinterpret_cast<const sockaddr*>(&storage); }
  socklen_t length() const;
};

// Those of this host that MPI uses, with port 0: of the interfaces that are up, those that
// OMPI_MCA_btl_tcp_if_include names, or those that OMPI_MCA_btl_tcp_if_exclude does not (by
// interface, "eth0", or network, "10.1.0.0/16"). Loopback is among them, unless one of the two says
// otherwise, for ranks of the same machine. Addresses that mean something on one link alone are
// not.
std::vector<Address> own_addresses();

// All sockets are non-blocking, closed on exec, without delay, and probed when idle. They are null
// where the system refuses, and errno tells why.
struct Listener {
  Socket socket;
  Address address;  // with the port that was found
};
std::optional<Listener> listen_on(const Address& address);
Socket accept_from(const Socket& listener);
// Under way or made; it can be written to once it is made.
Socket connect_to(const Address& address);

// What a non-blocking transfer came to.
struct Moved {
  size_t bytes = 0;
  int error = 0;       // of errno; 0: none; waiting for the peer, or for the connection, is none
  bool ended = false;  // the peer sends no more
};
// Without SIGPIPE.
Moved send_some(const Socket& socket, std::span<const std::byte> bytes);
Moved receive_some(const Socket& socket, std::span<std::byte> room);

}  // namespace trireme::comm
