// Describes one communication call, for error messages.
#pragma once

#include <cstdint>
#include <string>

#include "core/dtype.h"

namespace trireme::comm {

struct Call {
  const char* name;
  int64_t count = -1;  // in elements; -1 if the call carries no data
  DType dtype = DType::kU8;
  const char* peer_role = nullptr;  // e.g. "to rank"; null if the call has no peer
  int peer = -1;
};

// Returns e.g. "MPI_Send of 10 f32 to rank 3".
std::string describe(const Call& call);

}  // namespace trireme::comm
