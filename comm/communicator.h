// The ranks of a run and what they do together. One implementation a folder: `local` (one rank),
// `mpi` (host memory; ranks of one host add up in shared memory), `nccl` (memory of GPUs), `staged`
// (memory of a device, by way of the host).
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

// Where a rank sits.
struct Placement {
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;  // among the ranks of this host
  int local_ranks = 1;
  int host = 0;  // hosts are numbered by their lowest rank
  int hosts = 1;
  std::string host_name;
  Group group;  // of the world: that of which the numbers above are
};

// Memory of each rank of a host that all of these can read and write. Zeroed.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  // Where each rank's part lies in this process, by local rank.
  virtual std::span<std::byte* const> parts() const = 0;
};

// All ranks call the same operations in the same order with the same counts; counts are in
// elements. Work is queued on the stream. Operations on one communicator must stay in order: use
// one stream for it, or a communicator of its own (split) for each stream. A peer that is lost, or
// one that calls something else, shows as CommError, thrown where the stream's failures show. A
// recording that holds operations goes before their communicator. Errors name ranks of the world.
class Communicator : public Collective {
 public:
  virtual const Placement& placement() const = 0;
  int rank() const { return placement().rank; }
  int size() const override { return placement().ranks; }
  // What moves the data, for people: "MPI", "NCCL 2.28.9".
  virtual std::string transport() const = 0;
  // Whether operations may be in flight here on one stream and in another communicator on another
  // stream, all ranks having called them in the same order. If not, ranks that come to the two in
  // different orders could wait for each other forever: use one stream for both.
  virtual bool concurrent() const { return true; }
  // Why operations can no longer succeed, where this rank can tell without taking part in one: a
  // rank of this host has ended or failed. Else empty. From any thread.
  virtual std::string failure() const { return {}; }
  // Where this rank notes what it does: one for all communicators that stem from one another.
  virtual Ledger& ledger() = 0;

  // Memory in which all_reduce_sum is fastest, zeroed, aligned to 64 bytes or more. All ranks call
  // it together with the same size, let go of it together, before the communicator goes, and use it
  // alike: an all_reduce_sum in it is at the same place of the same buffer on every rank. While an
  // exception unwinds it is left to the end of the process, since the others may not come along.
  virtual Buffer allocate(size_t bytes) = 0;

  // So many bytes of each rank. All ranks call it together with the same size, and let go of it
  // together before the communicator goes, as above.
  virtual std::unique_ptr<HostMemory> share(size_t bytes) = 0;

  // all_reduce_sum (Collective): f32, f64, i64, f16 and bf16; anything of any alignment that suits
  // the type.

  // in holds size() parts of `count` each; out gets the sum of part rank(). Types as above.
  virtual void reduce_scatter_sum(const void* in, void* out, int64_t count, DType dtype,
                                  Stream& stream, CallTag tag = {}) = 0;
  // out holds size() parts of `count` each; in may be part rank() of it.
  virtual void all_gather(const void* in, void* out, int64_t count, DType dtype, Stream& stream,
                          CallTag tag = {}) = 0;
  virtual void broadcast(void* data, int64_t count, DType dtype, int root, Stream& stream,
                         CallTag tag = {}) = 0;
  virtual void send(const void* data, int64_t count, DType dtype, int to, Stream& stream,
                    CallTag tag = {}) = 0;
  virtual void recv(void* data, int64_t count, DType dtype, int from, Stream& stream,
                    CallTag tag = {}) = 0;
  virtual void barrier(Stream& stream) = 0;

  // A communicator of the ranks that gave the same color (0 or more), in the order of their keys,
  // with a group of its own. All ranks call, with nothing of this communicator in flight. Throws
  // CommError on all of them where one is in as many groups as its ledger has room for.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  // Ends all ranks now, from any thread, without their help.
  [[noreturn]] virtual void abort(int exit_code) noexcept = 0;
};

std::unique_ptr<Communicator> create_local_communicator();

// Throws CommError unless sums of this type exist.
void check_summable(const char* operation, DType dtype);

}  // namespace trireme::comm
