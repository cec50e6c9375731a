// Non-blocking TCP sockets for the side channel.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace trireme::comm {

// Owns a file descriptor.
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

  // Convert to and from "10.0.0.1:4242" or "[fd00::1]:4242". parse() returns nullopt if the text is
  // neither.
  std::string text() const;
  static std::optional<Address> parse(const std::string& text);
  const sockaddr* pointer() const { return reinterpret_cast<const sockaddr*>(&storage); }
  socklen_t length() const;
};

// Returns the addresses of this host that MPI uses, with port 0. These are the addresses of the
// interfaces that are up and, if OMPI_MCA_btl_tcp_if_include is set, listed in it, or otherwise not
// listed in OMPI_MCA_btl_tcp_if_exclude. Entries of these lists are interfaces ("eth0") or networks
// ("10.1.0.0/16"). Loopback addresses are included, for ranks on the same machine, unless
// btl_tcp_if_include is set without them. Link-local IPv6 addresses are not included.
std::vector<Address> local_addresses();

// All sockets are non-blocking and close-on-exec, with TCP_NODELAY and SO_KEEPALIVE. If the system
// returns an error, the socket is null and errno is set.
struct Listener {
  Socket socket;
  Address address;  // with the port that the system assigned
};
std::optional<Listener> listen_on(const Address& address);
Socket accept_from(const Socket& listener);
// Starts connecting. The socket becomes writable once the connection is established.
Socket connect_to(const Address& address);

// The result of a non-blocking transfer.
struct Transfer {
  size_t bytes = 0;
  int error = 0;       // an errno value, but 0 if the operation would have blocked
  bool ended = false;  // the peer has closed its side of the connection
};
// Does not raise SIGPIPE.
Transfer send_some(const Socket& socket, std::span<const std::byte> bytes);
Transfer receive_some(const Socket& socket, std::span<std::byte> buffer);

}  // namespace trireme::comm
