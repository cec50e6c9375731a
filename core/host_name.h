// The host name of this machine.
#pragma once

#include <unistd.h>

#include <string>

namespace trireme {

inline std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "an unknown host";
}

}  // namespace trireme
