// Collectives and transfers between the ranks of a run. Each folder has one implementation: `local`
// (one rank), `mpi` (host memory; ranks of the same host sum in shared memory), `nccl` (GPU memory)
// and `staged` (device memory, copied through host memory).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "comm/group.h"
#include "comm/ledger.h"
#include "core/collective.h"
#include "core/device.h"

namespace trireme::comm {

// The position of a rank in its process group and on its host.
struct Placement {
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;  // among the ranks of this host
  int local_ranks = 1;
  int host = 0;  // hosts are numbered in the order of their lowest rank
  int hosts = 1;
  std::string host_name;
  Group group;  // the group that the numbers above refer to
};

// Zero-initialized memory, one part per rank of a host, that all these ranks can read and write.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  // Returns the address of each rank's part in this process, by local rank.
  virtual std::span<std::byte* const> parts() const = 0;
};

// A process group's connection to its peers.
//
// All ranks must call the same operations in the same order with the same counts. Counts are in
// elements. Operations are queued on the given stream; operations on one communicator must stay in
// order, so use a single stream for it, or a communicator per stream (see split).
//
// If a peer is lost, or calls a different operation, CommError is thrown where failures of the
// stream are reported. Error messages name ranks of the world. Recordings that contain operations
// must be destroyed before their communicator.
class Communicator : public Collective {
 public:
  virtual const Placement& placement() const = 0;
  int rank() const { return placement().rank; }
  int size() const override { return placement().ranks; }
  // Returns the name of the library that moves the data, for messages: "MPI", "NCCL 2.28.9".
  virtual std::string transport() const = 0;
  // Returns true if operations of this communicator on one stream may be in flight at the same time
  // as operations of another communicator on another stream, provided that all ranks call them in
  // the same order. If false, ranks that start the two in different orders can deadlock: use one
  // stream for both communicators.
  virtual bool concurrent() const { return true; }
  // Returns why operations can no longer succeed, e.g. because a rank of this host has ended or
  // failed; empty if no such reason is known. Does not communicate. Callable from any thread.
  virtual std::string failure() const { return {}; }
  // Returns the ledger in which this rank records its activity. A communicator shares it with all
  // communicators split from it.
  virtual Ledger& ledger() = 0;

  // Returns zero-initialized memory, aligned to at least 64 bytes, in which all_reduce_sum is
  // fastest, as are reduce_scatter_sum and all_gather in place. All ranks must call it together
  // with the same size, destroy the buffer together, and do so before the communicator is
  // destroyed. Within such a buffer, all ranks must call these operations at the same offset. If
  // the buffer is destroyed while an exception unwinds, its memory is not released until the
  // process ends, since the other ranks may not take part.
  virtual Buffer allocate(size_t bytes) = 0;

  // Returns shared, zeroed memory with `bytes` bytes for each rank of this host. The rules of
  // allocate() for calling it and for destroying the result apply.
  virtual std::unique_ptr<HostMemory> share(size_t bytes) = 0;

  // all_reduce_sum (see Collective) supports f32, f64, i64, f16 and bf16, at any address that is
  // aligned for the type.

  // `in` holds size() parts of `count` elements each; `out` receives the sum of part rank() over
  // all ranks. If `out` is part rank() of `in`, the other parts are undefined afterwards. Supports
  // the dtypes of all_reduce_sum.
  virtual void reduce_scatter_sum(const void* in, void* out, int64_t count, DType dtype,
                                  Stream& stream, CallTag tag = {}) = 0;
  // `out` receives size() parts of `count` elements each; `in` may be part rank() of it.
  virtual void all_gather(const void* in, void* out, int64_t count, DType dtype, Stream& stream,
                          CallTag tag = {}) = 0;
  virtual void broadcast(void* data, int64_t count, DType dtype, int root, Stream& stream,
                         CallTag tag = {}) = 0;
  virtual void send(const void* data, int64_t count, DType dtype, int to, Stream& stream,
                    CallTag tag = {}) = 0;
  virtual void recv(void* data, int64_t count, DType dtype, int from, Stream& stream,
                    CallTag tag = {}) = 0;
  virtual void barrier(Stream& stream) = 0;
  // Makes send and recv fail on this rank that wait for their peer, now or later. For a rank that
  // fails between two transfers, whose peers will not take part. With NCCL, all later calls fail.
  // Callable from any thread.
  virtual void cancel() noexcept {}

  // Returns a communicator for the ranks that passed the same color (at least 0), ordered by key.
  // They form a process group of their own. All ranks must call it, with no operation of this
  // communicator in flight. Throws CommError on all ranks if any rank is already in the maximum
  // number of groups.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  // Ends all ranks immediately, without their cooperation. Callable from any thread.
  [[noreturn]] virtual void abort(int exit_code) noexcept = 0;
};

std::unique_ptr<Communicator> create_local_communicator();

// Throws CommError unless `dtype` can be summed.
void check_summable(const char* operation, DType dtype);

}  // namespace trireme::comm
