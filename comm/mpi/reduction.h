// Sums with MPI reductions. Defines operators for f16 and bf16, which MPI does not support.
#pragma once

#include <mpi.h>

#include <cstdint>

#include "core/dtype.h"

namespace trireme::comm::mpi {

class Reduction {
 public:
  Reduction();
  ~Reduction();
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  MPI_Op sum_of(DType dtype) const;
  void sum_in_place(MPI_Comm comm, void* data, int64_t count, DType dtype) const;

 private:
  MPI_Op f16_ = MPI_OP_NULL;
  MPI_Op bf16_ = MPI_OP_NULL;
};

}  // namespace trireme::comm::mpi
