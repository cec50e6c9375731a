// A fake of NCCL over MPI, for the kinds of communicators that Trireme creates: non-blocking, of
// all ranks or split from such a one. Misuse terminates the process. As strict as NCCL may be:
// - The emulated GPU runs one operation at a time. With NCCL_LAUNCH_ORDER_IMPLICIT, operations of
//   all communicators and streams run in the order of the calls; each ends before the next begins.
// - A send ends only when its receive runs. The first send to a rank over a communicator, and the
//   first receive from it, are in progress until the other rank makes the matching call.
// - An operation that waits longer than NcclFaults::patience_ms fails, as in a deadlock.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "emulation.h"
#include "nccl_faults.h"

struct ncclComm {
  MPI_Comm ranks = MPI_COMM_NULL;  // null if there is only one rank
  int rank = 0;
  int size = 1;
  int polls = 0;  // remaining polls until it is ready
  std::function<void()> when_ready;
  bool finalized = false;
  std::set<void*> registrations;
  std::set<std::pair<bool, int>> connected;  // to send (or receive), and the peer
  std::function<bool()> is_connected;        // null if it is not connecting
  std::atomic<bool> aborted{false};
  cudaEvent_t latest = nullptr;  // event of its latest operation
  bool captured = false;
};

namespace trireme::emulation {
namespace {

using Comm = std::shared_ptr<ncclComm>;
using Bytes = std::vector<std::byte>;

using Clock = std::chrono::steady_clock;

constexpr int kPolls = 2;  // polls for which a call is in progress

std::mutex mutex;  // protects the variables below and the communicators
std::map<ncclComm_t, Comm> communicators;
std::set<void*> allocations;
Comm latest;  // communicator of the latest operation

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "emulated NCCL: %s\n", what);
  std::abort();
}
void require(bool holds, const char* what) {
  if (!holds) die(what);
}

Comm find(ncclComm_t handle) {
  const auto found = communicators.find(handle);
  require(found != communicators.end(), "the communicator does not exist or was destroyed");
  return found->second;
}

// Returns a communicator that is ready for calls.
Comm ready(ncclComm_t handle) {
  Comm comm = find(handle);
  require(comm->polls == 0 && !comm->is_connected, "a call while the previous one is in progress");
  require(!comm->finalized, "a call on a finalized communicator");
  return comm;
}

ncclResult_t begin(ncclComm& comm) {
  comm.polls = kPolls;
  return ncclInProgress;
}

ncclComm_t add(MPI_Comm ranks) {
  auto comm = std::make_shared<ncclComm>();
  MPI_Comm_rank(ranks, &comm->rank);
  MPI_Comm_size(ranks, &comm->size);
  comm->ranks = ranks;
  begin(*comm);
  return communicators.emplace(comm.get(), comm).first->first;
}

void require_blocking_is_off(const ncclConfig_t* config) {
  require(config && config->blocking == 0, "only non-blocking communicators are emulated");
}

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclFloat64:
      return 8;
    default:
      die("a type that is not emulated");
  }
}

// --- On the GPU ---

void pause() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

// Waits until all are done. Returns false if the communicator is aborted before.
bool wait(const ncclComm& comm, std::vector<MPI_Request>& requests) {
  const auto end = Clock::now() + std::chrono::milliseconds(nccl_faults().patience_ms);
  for (int done = 0; !comm.aborted; pause()) {
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    if (done) return true;
    if (Clock::now() > end) {
      throw std::runtime_error("another rank has not taken part for too long; a deadlock?");
    }
  }
  return false;
}

// Returns the bytes of all ranks, in the order of ranks.
Bytes gather(const ncclComm& comm, const void* data, size_t bytes) {
  Bytes all(bytes * static_cast<size_t>(comm.size));
  if (comm.size == 1) {
    std::memcpy(all.data(), data, bytes);
    return all;
  }
  std::vector<MPI_Request> request(1);
  MPI_Iallgather(data, static_cast<int>(bytes), MPI_BYTE, all.data(), static_cast<int>(bytes),
                 MPI_BYTE, comm.ranks, request.data());
  wait(comm, request);
  return all;
}

// The messages between two ranks of a communicator.
class Messages {
 public:
  Messages(const ncclComm& comm, int peer) : comm_(comm), peer_(peer) {}
  // Cancels those that have not been waited for.
  ~Messages() {
    for (MPI_Request& request : requests_) {
      if (request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
  }

  enum Tag { kData, kBytesExpected, kHello, kWelcome };
  void send(const void* data, size_t bytes, Tag tag) {
    MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer_, tag, comm_.ranks, &add());
  }
  void receive(void* data, size_t bytes, Tag tag) {
    MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer_, tag, comm_.ranks, &add());
  }
  bool wait() { return emulation::wait(comm_, requests_); }
  bool done() {
    int all = 0;
    MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE);
    return all != 0;
  }

 private:
  MPI_Request& add() { return requests_.emplace_back(MPI_REQUEST_NULL); }

  const ncclComm& comm_;
  const int peer_;
  std::vector<MPI_Request> requests_;
};

void send(const ncclComm& comm, const void* data, size_t bytes, int peer) {
  size_t expected = 0;
  Messages messages(comm, peer);
  messages.receive(&expected, sizeof expected, Messages::kBytesExpected);
  if (!messages.wait()) return;
  if (expected != bytes) throw std::runtime_error("the receiver expects another number of bytes");
  messages.send(data, bytes, Messages::kData);
  messages.wait();
}

void receive(const ncclComm& comm, void* data, size_t bytes, int peer) {
  Messages messages(comm, peer);
  messages.receive(data, bytes, Messages::kData);
  messages.send(&bytes, sizeof bytes, Messages::kBytesExpected);
  messages.wait();
}

// Computes the sum of `count_of_parts` arrays that are `stride` bytes apart.
template <class T, class Total>
void sum(const std::byte* parts, size_t stride, int count_of_parts, void* out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    Total total{};
    for (int part = 0; part < count_of_parts; ++part) {
      T value;
      std::memcpy(&value, parts + static_cast<size_t>(part) * stride + i * sizeof(T), sizeof(T));
      total += static_cast<Total>(value);
    }
    const T value = static_cast<T>(total);
    std::memcpy(static_cast<std::byte*>(out) + i * sizeof(T), &value, sizeof(T));
  }
}

void sum(ncclDataType_t type, const std::byte* parts, size_t stride, int count_of_parts, void* out,
         size_t count) {
  switch (type) {
    case ncclFloat32:
      return sum<float, float>(parts, stride, count_of_parts, out, count);
    case ncclFloat64:
      return sum<double, double>(parts, stride, count_of_parts, out, count);
    case ncclInt64:
      return sum<int64_t, int64_t>(parts, stride, count_of_parts, out, count);
    case ncclFloat16:
      return sum<__half, float>(parts, stride, count_of_parts, out, count);
    case ncclBfloat16:
      return sum<__nv_bfloat16, float>(parts, stride, count_of_parts, out, count);
    default:
      die("a type whose sum is not emulated");
  }
}

bool is_captured(cudaStream_t stream) {
  auto status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream, &status);
  return status != cudaStreamCaptureStatusNone;
}

void keep_order(const Comm& comm, cudaStream_t stream) {
  const char* wanted = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  if (!wanted || *wanted != '1' || !latest || latest == comm) return;
  // An operation queued before a capture runs before the work that precedes the replay.
  if (latest->captured != is_captured(stream)) return;
  if (cudaStreamWaitEvent(stream, latest->latest, 0) != cudaSuccess) cudaGetLastError();
}

void note_order(const Comm& comm, cudaStream_t stream) {
  if (!comm->latest) cudaEventCreateWithFlags(&comm->latest, cudaEventDisableTiming);
  comm->captured = is_captured(stream);
  cudaEventRecord(comm->latest, stream);
  latest = comm;
}

// Queues work(communicator) on the stream.
template <class Work>
ncclResult_t queue(ncclComm_t handle, cudaStream_t stream, const char* name, Work work) {
  std::lock_guard lock(mutex);
  const Comm comm = ready(handle);
  keep_order(comm, stream);
  const auto run = [comm, work] {
    while (nccl_faults().stuck && !comm->aborted) pause();
    if (!comm->aborted) work(*comm);
  };
  const cudaError_t result = enqueue(stream, name, run, /*communicates=*/true);
  if (result != cudaSuccess) return ncclUnhandledCudaError;
  note_order(comm, stream);
  return begin(*comm);
}

// Begins to connect to the peer if it is the first transfer in this direction.
void connect(ncclComm_t handle, bool to_send, int peer) {
  std::lock_guard lock(mutex);
  ncclComm& comm = *find(handle);
  if (!comm.connected.emplace(to_send, peer).second) return;
  auto messages = std::make_shared<Messages>(comm, peer);
  messages->send(nullptr, 0, to_send ? Messages::kHello : Messages::kWelcome);
  messages->receive(nullptr, 0, to_send ? Messages::kWelcome : Messages::kHello);
  comm.is_connected = [messages] { return messages->done(); };
}

bool is_connecting(ncclComm& comm) {
  if (comm.is_connected && comm.is_connected()) comm.is_connected = nullptr;
  return comm.is_connected != nullptr;
}

}  // namespace

NcclFaults& nccl_faults() {
  static NcclFaults faults;
  return faults;
}

}  // namespace trireme::emulation

using namespace trireme::emulation;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> ids = 0;
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "%d of process %d", ++ids, getpid());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  require_blocking_is_off(config);
  std::lock_guard lock(mutex);
  if (ranks == 1) {
    const auto made = std::make_shared<ncclComm>();
    *comm = communicators.emplace(made.get(), made).first->first;
    return begin(*made);
  }
  MPI_Comm world = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &world);
  *comm = add(world);
  require((*comm)->size == ranks && (*comm)->rank == rank, "only all ranks together are emulated");
  ncclUniqueId first = id;
  MPI_Bcast(&first, sizeof first, MPI_BYTE, 0, world);
  require(std::memcmp(&first, &id, sizeof id) == 0, "ranks with different ids");
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* part,
                           ncclConfig_t* config) {
  require_blocking_is_off(config);
  std::lock_guard lock(mutex);
  const Comm comm = ready(handle);
  ncclComm_t made = nullptr;
  if (comm->size == 1) {
    const auto alone = std::make_shared<ncclComm>();
    begin(*alone);
    made = communicators.emplace(alone.get(), alone).first->first;
  } else {
    MPI_Comm ranks = MPI_COMM_NULL;
    MPI_Comm_split(comm->ranks, color, key, &ranks);
    made = add(ranks);
  }
  comm->when_ready = [=] { *part = made; };
  begin(*comm);
  return ncclSuccess;  // unlike the other functions, it does not return ncclInProgress
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  std::lock_guard lock(mutex);
  const Comm comm = find(handle);
  *error = nccl_faults().error;
  if (*error != ncclSuccess || comm->polls == 0) return ncclSuccess;
  if (!nccl_faults().never_ready) --comm->polls;
  if (comm->polls > 0) {
    *error = ncclInProgress;
  } else if (is_connecting(*comm)) {
    comm->polls = 1;
    *error = ncclInProgress;
  } else if (comm->when_ready) {
    std::exchange(comm->when_ready, nullptr)();
  }
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  std::lock_guard lock(mutex);
  const Comm comm = ready(handle);
  const ncclResult_t result = begin(*comm);
  comm->when_ready = [comm = comm.get()] { comm->finalized = true; };
  return result;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  std::lock_guard lock(mutex);
  const Comm comm = find(handle);
  require(comm->finalized, "a communicator is destroyed before it is finalized");
  require(comm->registrations.empty(), "registered memory outlives its communicator");
  if (comm->ranks != MPI_COMM_NULL) MPI_Comm_free(&comm->ranks);
  communicators.erase(handle);
  return ncclInProgress;  // the rest is done asynchronously
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  std::lock_guard lock(mutex);
  find(handle)->aborted = true;
  communicators.erase(handle);
  return ncclInProgress;
}

ncclResult_t ncclCommRegister(const ncclComm_t handle, void* data, size_t, void** registration) {
  std::lock_guard lock(mutex);
  require(allocations.contains(data), "memory is registered that NCCL did not allocate");
  require(ready(handle)->registrations.insert(data).second, "memory is registered twice");
  *registration = data;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t handle, void* registration) {
  std::lock_guard lock(mutex);
  require(ready(handle)->registrations.erase(registration) == 1, "an unknown registration");
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
  if (nccl_faults().no_allocator) return ncclInvalidUsage;
  if (cudaMalloc(data, bytes) != cudaSuccess) return ncclUnhandledCudaError;
  std::lock_guard lock(mutex);
  allocations.insert(*data);
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* data) {
  {
    std::lock_guard lock(mutex);
    require(allocations.erase(data) == 1, "memory is freed that NCCL did not allocate");
    for (const auto& [handle, comm] : communicators) {
      require(!comm->registrations.contains(data), "memory is freed that is still registered");
    }
  }
  return cudaFree(data) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  require(op == ncclSum, "only sums are emulated");
  return queue(comm, stream, "ncclAllReduce", [=](const ncclComm& self) {
    const size_t bytes = count * size_of(type);
    const Bytes all = gather(self, in, bytes);
    if (!self.aborted) sum(type, all.data(), bytes, self.size, out, count);
  });
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  require(op == ncclSum, "only sums are emulated");
  return queue(comm, stream, "ncclReduceScatter", [=](const ncclComm& self) {
    const size_t bytes = count * size_of(type);
    const size_t whole = bytes * static_cast<size_t>(self.size);
    const Bytes all = gather(self, in, whole);
    const size_t own = bytes * static_cast<size_t>(self.rank);
    if (!self.aborted) sum(type, all.data() + own, whole, self.size, out, count);
  });
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return queue(comm, stream, "ncclAllGather", [=](const ncclComm& self) {
    const Bytes all = gather(self, in, count * size_of(type));
    if (!self.aborted) std::memcpy(out, all.data(), all.size());
  });
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return queue(comm, stream, "ncclBroadcast", [=](const ncclComm& self) {
    const size_t bytes = count * size_of(type);
    const Bytes all = gather(self, in, bytes);
    if (!self.aborted) std::memcpy(out, all.data() + bytes * static_cast<size_t>(root), bytes);
  });
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  const auto result = queue(comm, stream, "ncclSend", [=](const ncclComm& self) {
    send(self, data, count * size_of(type), peer);
  });
  if (result == ncclInProgress) connect(comm, /*to_send=*/true, peer);
  return result;
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const auto result = queue(comm, stream, "ncclRecv", [=](const ncclComm& self) {
    receive(self, data, count * size_of(type), peer);
  });
  if (result == ncclInProgress) connect(comm, /*to_send=*/false, peer);
  return result;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "a remote process has ended" : "an emulated error";
}

const char* ncclGetLastError(ncclComm_t) { return "reported by the emulation"; }

}  // extern "C"
