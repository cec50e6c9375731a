// First line: an address with a port, as exchanged between ranks. Second line: the network
// interfaces that MPI is configured to use.
#include <cstdlib>

#include "comm/watchdog/socket.h"
#include "tests/fuzz/fuzz.h"

using trireme::comm::Address;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(trireme::fuzz::text_of(data, size));
  if (text.find('\0') != std::string::npos) return 0;
  const size_t end = std::min(text.find('\n'), text.size());
  if (const auto address = Address::parse(text.substr(0, end))) {
    const auto again = Address::parse(address->text());
    trireme::fuzz::require(again && again->text() == address->text(),
                           "a formatted address can be parsed");
  }
  setenv("OMPI_MCA_btl_tcp_if_include", text.substr(std::min(end + 1, text.size())).c_str(), 1);
  trireme::comm::local_addresses();
  return 0;
}
