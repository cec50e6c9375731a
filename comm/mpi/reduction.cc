#include "comm/mpi/reduction.h"

#include <array>

#include "comm/mpi/checked.h"
#include "comm/mpi/sum.h"

namespace trireme::comm::mpi {
namespace {

template <DType dtype>
void add(void* in, void* in_out, int* count, MPI_Datatype*) {
  auto* output = static_cast<std::byte*>(in_out);
  const std::array<const std::byte*, 2> inputs = {static_cast<std::byte*>(in), output};
  sum(dtype, inputs, std::span(&output, 1), *count);
}

}  // namespace

Reduction::Reduction() {
  check(MPI_Op_create(add<DType::kF16>, /*commute=*/1, &f16_), {"MPI_Op_create"});
  check(MPI_Op_create(add<DType::kBF16>, /*commute=*/1, &bf16_), {"MPI_Op_create"});
}

Reduction::~Reduction() {
  MPI_Op_free(&f16_);
  MPI_Op_free(&bf16_);
}

MPI_Op Reduction::sum_of(DType dtype) const {
  if (dtype == DType::kF16) return f16_;
  return dtype == DType::kBF16 ? bf16_ : MPI_SUM;
}

void Reduction::sum_in_place(MPI_Comm comm, void* data, int64_t count, DType dtype) const {
  in_parts(count, [&](int64_t first, int n) {
    check(
        MPI_Allreduce(MPI_IN_PLACE, at(data, first, dtype), n, type_of(dtype), sum_of(dtype), comm),
        {"MPI_Allreduce", n, dtype});
  });
}

}  // namespace trireme::comm::mpi
