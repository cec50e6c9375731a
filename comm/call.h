// What was asked of the other ranks, for messages.
#pragma once

#include <cstdint>
#include <string>

#include "core/dtype.h"

namespace trireme::comm {

struct Call {
  const char* name;
  int64_t count = -1;  // of elements; -1: without data
  DType dtype = DType::kU8;
  const char* peer_role = nullptr;  // e.g. "to rank"
  int peer = -1;
};

// "MPI_Send of 10 f32 to rank 3"
std::string describe(const Call& call);

}  // namespace trireme::comm
