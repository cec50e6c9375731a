// Memory shared by the ranks of a host, allocated by MPI.
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
  // Allocates `bytes` of zeroed memory, rounded up to whole pages, for each rank of `host`; these
  // ranks must be on one host. All of them must construct it with the same size and destroy it
  // together. If an exception unwinds, the memory stays mapped. Throws CommError on all ranks if
  // the host has too little shared memory.
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
