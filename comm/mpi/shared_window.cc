#include "comm/mpi/shared_window.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <cstring>

#include "core/error.h"
#include "core/text.h"

namespace trireme::comm::mpi {
namespace {

constexpr size_t kPage = 4096;
constexpr const char* kSharedMemory = "/dev/shm";

std::byte* align(std::byte* part) {
  const auto address = reinterpret_cast<uintptr_t>(part);
  return part + ((kPage - address % kPage) % kPage);
}

// Throws on all ranks if there is too little shared memory. Without this check, Open MPI's first
// rank would return an error while the others wait for it.
void check_available(const Comm& host, size_t bytes) {
  uint64_t available = UINT64_MAX;
  struct statvfs status = {};
  if (host.rank() == 0 && statvfs(kSharedMemory, &status) == 0) {
    available = uint64_t{status.f_bavail} * status.f_frsize;
  }
  check(MPI_Bcast(&available, 1, MPI_UINT64_T, 0, host.get()), {"MPI_Bcast"});
  const uint64_t needed = uint64_t{bytes} * static_cast<uint64_t>(host.size());
  if (needed <= available) return;
  throw CommError(fmt::format(
      "{} has {} free, but the {} ranks of this host need {} of shared memory; make it larger "
      "(containers: --shm-size)",
      kSharedMemory, format_bytes(static_cast<double>(available)), host.size(),
      format_bytes(static_cast<double>(needed))));
}

}  // namespace

SharedWindow::SharedWindow(const Comm& host, size_t bytes) : bytes_(bytes) {
  // MPI aligns a part to 8 bytes only. Mappings start at page boundaries, so all ranks compute the
  // same aligned address within a part.
  const size_t used = (bytes / kPage + 1) * kPage;
  const size_t rounded = used + kPage;
  check_available(host, rounded);
  MPI_Info info = MPI_INFO_NULL;
  check(MPI_Info_create(&info), {"MPI_Info_create"});
  // Puts each rank's part on pages of its own, in memory near its core.
  check(MPI_Info_set(info, "alloc_shared_noncontig", "true"), {"MPI_Info_set"});
  const int status =
      MPI_Win_allocate_shared(static_cast<MPI_Aint>(rounded), 1, info, host.get(), &own_, &window_);
  MPI_Info_free(&info);
  check(status, {"MPI_Win_allocate_shared", static_cast<int64_t>(rounded)});
  MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN);
  for (int rank = 0; rank < host.size(); ++rank) {
    MPI_Aint size = 0;
    int unit = 0;
    std::byte* part = nullptr;
    check(MPI_Win_shared_query(window_, rank, &size, &unit, &part), {"MPI_Win_shared_query"});
    parts_.push_back(align(part));
  }
  own_ = parts_[host.rank()];
  std::memset(own_, 0, used);
  check(MPI_Barrier(host.get()), {"MPI_Barrier"});
}

SharedWindow::~SharedWindow() {
  if (window_ != MPI_WIN_NULL && !unwinding()) MPI_Win_free(&window_);
}

}  // namespace trireme::comm::mpi
