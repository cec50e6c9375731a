#include "comm/watchdog/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/parse_number.h"

namespace trireme::comm {
namespace {

const sockaddr_in& ipv4(const Address& address) {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}
const sockaddr_in6& ipv6(const Address& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}
bool is_ipv4(const Address& address) { return address.storage.ss_family == AF_INET; }

// Returns the bytes of the address without the port, in network order.
std::span<const unsigned char> bits_of(const Address& address) {
  if (is_ipv4(address)) {
    return {reinterpret_cast<const unsigned char*>(&ipv4(address).sin_addr), sizeof(in_addr)};
  }
  return {reinterpret_cast<const unsigned char*>(&ipv6(address).sin6_addr), sizeof(in6_addr)};
}

bool is_loopback(const Address& address) {
  return is_ipv4(address) ? bits_of(address)[0] == 127
                          : IN6_IS_ADDR_LOOPBACK(&ipv6(address).sin6_addr);
}

// Parses an address without a port.
std::optional<Address> parse_host(const std::string& text) {
  Address address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
  if (inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    address.storage.ss_family = AF_INET;
  } else if (inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1) {
    address.storage.ss_family = AF_INET6;
  } else {
    return {};
  }
  address.loopback = is_loopback(address);
  return address;
}

bool same_bits(std::span<const unsigned char> a, std::span<const unsigned char> b, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (((a[i / 8] ^ b[i / 8]) >> (7 - i % 8)) & 1) return false;
  }
  return true;
}

// Returns true if an entry of Open MPI's lists, "eth0" or "10.1.0.0/16", matches this address.
bool matches(const std::string& entry, const std::string& interface, const Address& address) {
  const size_t slash = entry.find('/');
  const auto network = parse_host(entry.substr(0, slash));
  if (!network) return entry == interface;
  if (is_ipv4(*network) != is_ipv4(address)) return false;
  const auto bits = bits_of(address);
  std::optional<size_t> prefix = bits.size() * 8;
  if (slash != std::string::npos) prefix = parse_number<size_t>(entry.substr(slash + 1));
  return prefix && *prefix <= bits.size() * 8 && same_bits(bits, bits_of(*network), *prefix);
}

bool listed(const char* list, const std::string& interface, const Address& address) {
  std::string_view rest = list;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    if (matches(std::string(rest.substr(0, comma)), interface, address)) return true;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return false;
}

bool used_by_mpi(const std::string& interface, const Address& address) {
  const auto setting = [](const char* name) {
    const char* value = std::getenv(name);
    return value && *value ? value : nullptr;
  };
  if (const char* include = setting("OMPI_MCA_btl_tcp_if_include")) {
    return listed(include, interface, address);
  }
  // Loopback is kept: Open MPI requires users who set the exclude list to include loopback in it,
  // and the side channel only offers loopback to ranks of this machine.
  const char* exclude = setting("OMPI_MCA_btl_tcp_if_exclude");
  return address.loopback || !exclude || !listed(exclude, interface, address);
}

std::optional<Address> address_of(const ifaddrs& entry) {
  if (!entry.ifa_addr || !(entry.ifa_flags & IFF_UP)) return {};
  Address address;
  if (entry.ifa_addr->sa_family == AF_INET) {
    std::memcpy(&address.storage, entry.ifa_addr, sizeof(sockaddr_in));
  } else if (entry.ifa_addr->sa_family == AF_INET6) {
    std::memcpy(&address.storage, entry.ifa_addr, sizeof(sockaddr_in6));
    if (IN6_IS_ADDR_LINKLOCAL(&ipv6(address).sin6_addr)) return {};
  } else {
    return {};
  }
  address.loopback = is_loopback(address);
  return address;
}

Socket open_socket(int family) {
  return Socket(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// Sets options without which the connection still works, so errors are ignored.
void tune(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(socket.fd(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

Transfer transfer_result(ssize_t result) {
  if (result >= 0) return {.bytes = static_cast<size_t>(result)};
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {};
  return {.error = errno};
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

std::string Address::text() const {
  char host[INET6_ADDRSTRLEN] = {};
  inet_ntop(storage.ss_family, bits_of(*this).data(), host, sizeof host);
  return is_ipv4(*this) ? fmt::format("{}:{}", host, ntohs(ipv4(*this).sin_port))
                        : fmt::format("[{}]:{}", host, ntohs(ipv6(*this).sin6_port));
}

std::optional<Address> Address::parse(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return {};
  const bool brackets = colon >= 2 && text[0] == '[' && text[colon - 1] == ']';
  auto address = parse_host(brackets ? text.substr(1, colon - 2) : text.substr(0, colon));
  const auto port = parse_number<uint16_t>(std::string_view(text).substr(colon + 1));
  if (!address || brackets == is_ipv4(*address) || !port) return {};
  // The port is at the same offset in sockaddr_in6.
  reinterpret_cast<sockaddr_in&>(address->storage).sin_port = htons(*port);
  return address;
}

socklen_t Address::length() const {
  return is_ipv4(*this) ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

std::vector<Address> local_addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(first, freeifaddrs);
  std::vector<Address> addresses;
  for (const ifaddrs* entry = first; entry; entry = entry->ifa_next) {
    const auto address = address_of(*entry);
    if (address && used_by_mpi(entry->ifa_name, *address)) addresses.push_back(*address);
  }
  return addresses;
}

std::optional<Listener> listen_on(const Address& address) {
  Listener listener{open_socket(address.storage.ss_family), address};
  if (!listener.socket) return {};
  const int fd = listener.socket.fd();
  auto length = static_cast<socklen_t>(sizeof listener.address.storage);
  if (bind(fd, address.pointer(), address.length()) != 0 || listen(fd, SOMAXCONN) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&listener.address.storage), &length) != 0) {
    return {};
  }
  return listener;
}

Socket accept_from(const Socket& listener) {
  Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) tune(socket);
  return socket;
}

Socket connect_to(const Address& address) {
  Socket socket = open_socket(address.storage.ss_family);
  if (!socket) return socket;
  tune(socket);
  const int result = connect(socket.fd(), address.pointer(), address.length());
  return result == 0 || errno == EINPROGRESS ? std::move(socket) : Socket();
}

Transfer send_some(const Socket& socket, std::span<const std::byte> bytes) {
  return transfer_result(send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
}

Transfer receive_some(const Socket& socket, std::span<std::byte> buffer) {
  const ssize_t result = recv(socket.fd(), buffer.data(), buffer.size(), 0);
  return result == 0 ? Transfer{.ended = true} : transfer_result(result);
}

}  // namespace trireme::comm
