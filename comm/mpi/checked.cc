#include "comm/mpi/checked.h"

#include <fmt/format.h>

#include <exception>
#include <string>

#include "core/error.h"

namespace trireme::comm::mpi {

void check(int status, const Call& call) {
  if (status == MPI_SUCCESS) return;
  char reason[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, reason, &length);
  throw CommError(fmt::format("{} failed: {}", describe(call), reason));
}

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return MPI_FLOAT;
    case DType::kF64:
      return MPI_DOUBLE;
    case DType::kF16:
    case DType::kBF16:
      return MPI_UINT16_T;
    case DType::kI32:
      return MPI_INT32_T;
    case DType::kI64:
      return MPI_INT64_T;
    case DType::kU8:
      return MPI_UINT8_T;
  }
  return MPI_DATATYPE_NULL;
}

bool unwinding() noexcept { return std::uncaught_exceptions() > 0; }

Comm::Comm(MPI_Comm handle) : handle_(handle) {
  if (handle != MPI_COMM_NULL) MPI_Comm_set_errhandler(handle, MPI_ERRORS_RETURN);
}

Comm::~Comm() {
  if (handle_ != MPI_COMM_NULL && !unwinding()) MPI_Comm_free(&handle_);
}

int Comm::rank() const {
  int rank = 0;
  check(MPI_Comm_rank(handle_, &rank), {"MPI_Comm_rank"});
  return rank;
}

int Comm::size() const {
  int size = 0;
  check(MPI_Comm_size(handle_, &size), {"MPI_Comm_size"});
  return size;
}

Comm Comm::split(int color, int key) const {
  MPI_Comm part = MPI_COMM_NULL;
  check(MPI_Comm_split(handle_, color, key, &part), {"MPI_Comm_split"});
  return Comm(part);
}

Comm Comm::split_by_host() const {
  MPI_Comm host = MPI_COMM_NULL;
  check(MPI_Comm_split_type(handle_, MPI_COMM_TYPE_SHARED, rank(), MPI_INFO_NULL, &host),
        {"MPI_Comm_split_type"});
  return Comm(host);
}

}  // namespace trireme::comm::mpi
