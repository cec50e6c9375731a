// Memory of every rank of a host that all of them can read and write.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/mpi/checked.h"

namespace trireme::comm::mpi {

class SharedWindow final : public HostMemory {
 public:
  // Zeroed, `bytes` (at least one page) for each rank of the communicator, which all share a host.
  // All of them call it, with the same size; and destroy it together, except when unwinding: then
  // it stays mapped. Throws CommError on all ranks when the host lacks the memory.
  SharedWindow(const Comm& host, size_t bytes);
  ~SharedWindow() override;
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;

  std::byte* own() const { return own_; }
  size_t bytes() const { return bytes_; }
  std::span<std::byte* const> parts() const override { return parts_; }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  size_t bytes_;
  std::byte* own_ = nullptr;
  std::vector<std::byte*> parts_;
};

}  // namespace trireme::comm::mpi
