// Error checking of MPI calls, and ownership of MPI communicators.
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

// Returns the MPI type for elements of `dtype`. Half precision is transferred as bits.
MPI_Datatype type_of(DType dtype);

// Calls body(first element, count) for parts whose count fits into an int, as MPI requires.
template <class Body>
void in_parts(int64_t count, Body&& body) {
  constexpr int64_t kMax = int64_t{1} << 30;
  for (int64_t first = 0; first < count; first += kMax) {
    body(first, static_cast<int>(std::min(count - first, kMax)));
  }
}

// Returns true while an exception unwinds. Collective calls must not be made then, since the other
// ranks may not take part.
bool unwinding() noexcept;

// Owns an MPI communicator, which returns errors rather than aborting. Destroying it is collective,
// unless an exception unwinds: then the communicator is leaked.
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
  // Returns a communicator for the ranks with the same color, ordered by key; null if the color is
  // MPI_UNDEFINED.
  Comm split(int color, int key) const;
  // Returns a communicator for the ranks that can share memory with this one, ordered by rank.
  Comm split_by_host() const;

 private:
  MPI_Comm handle_ = MPI_COMM_NULL;
};

}  // namespace trireme::comm::mpi
