#include "comm/call.h"

#include <fmt/format.h>

namespace trireme::comm {

std::string describe(const Call& call) {
  std::string text = call.name;
  if (call.count >= 0) text += fmt::format(" of {} {}", call.count, name_of(call.dtype));
  if (call.peer_role) text += fmt::format(" {} {}", call.peer_role, call.peer);
  return text;
}

}  // namespace trireme::comm
