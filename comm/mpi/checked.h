// MPI calls whose failure is a CommError, and handles that are given back.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "comm/call.h"
#include "comm/memory.h"
#include "core/dtype.h"

namespace trireme::comm::mpi {

// Throws CommError unless `status` is MPI_SUCCESS.
void check(int status, const Call& call);

// The type that moves such elements. Half precision moves as bits.
MPI_Datatype type_of(DType dtype);

// MPI counts are ints. Calls body(first element, count) on parts that fit.
template <class Body>
void in_parts(int64_t count, Body&& body) {
  constexpr int64_t kMax = int64_t{1} << 30;
  for (int64_t first = 0; first < count; first += kMax) {
    body(first, static_cast<int>(std::min(count - first, kMax)));
  }
}

// True while an exception unwinds: collective calls must not be made then, as the others may not
// come.
bool unwinding() noexcept;

// Owns a communicator whose errors are returned, not fatal. Let go of collectively, except when
// unwinding.
class Comm {
 public:
  Comm() = default;
  explicit Comm(MPI_Comm handle);
  Comm(Comm&& other) noexcept : handle_(other.handle_) { other.handle_ = MPI_COMM_NULL; }
  Comm& operator=(Comm&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Comm();

  MPI_Comm get() const { return handle_; }
  explicit operator bool() const { return handle_ != MPI_COMM_NULL; }
  int rank() const;
  int size() const;
  // Ranks of one color together, in the order of their keys; color MPI_UNDEFINED gets none.
  Comm split(int color, int key) const;
  // The ranks that can share memory with this one, in the order of rank.
  Comm split_by_host() const;

 private:
  MPI_Comm handle_ = MPI_COMM_NULL;
};

}  // namespace trireme::comm::mpi
