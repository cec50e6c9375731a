#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "comm/control.h"
#include "comm/nccl/connection.h"
#include "comm/nccl/nccl.h"
#include "core/cuda/cuda.h"

namespace trireme::comm::nccl {
namespace {

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ncclFloat32;
    case DType::kF64:
      return ncclFloat64;
    case DType::kF16:
      return ncclFloat16;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kI32:
      return ncclInt32;
    case DType::kI64:
      return ncclInt64;
    case DType::kU8:
      return ncclUint8;
  }
  return ncclNumTypes;
}

// Makes calls return at once and continue in a thread of NCCL, so that none can block the detection
// of a lost peer.
ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<const Library> library, std::unique_ptr<Communicator> host,
                   Device& device, std::shared_ptr<SharedFailure> shared_failure,
                   const std::function<ncclResult_t(ncclComm_t*)>& start)
      : library_(std::move(library)),
        host_(std::move(host)),
        device_(device),
        stream_(device.create_stream(StreamKind::kBackground)),
        shared_failure_(std::move(shared_failure)),
        connection_(*library_, *host_, device, shared_failure_, start),
        barrier_buffer_(allocate(sizeof(float))) {}

  const Placement& placement() const override { return host_->placement(); }
  std::string transport() const override { return "NCCL " + library_->version(); }
  std::string failure() const override {
    const std::string reason = connection_.failure();
    return reason.empty() ? host_->failure() : reason;
  }

  Ledger& ledger() override { return host_->ledger(); }

  Buffer allocate(size_t bytes) override {
    TRIREME_CUDA(cudaSetDevice(cuda::properties(device_).index));  // where NCCL allocates
    const size_t size = std::max<size_t>(bytes, 1);
    void* data = nullptr;
    if (library_->mem_alloc(&data, size) != ncclSuccess) return allocate_unregistered(bytes);
    Buffer memory(data, bytes, [this](void* its_data) { library_->mem_free(its_data); });
    clear(memory);
    void* registration = nullptr;
    connection_.run({"register"}, [&](ncclComm_t comm) {
      return library_->comm_register(comm, data, size, &registration);
    });
    return registered(std::move(memory), registration);
  }

  std::unique_ptr<HostMemory> share(size_t bytes) override { return host_->share(bytes); }

  void all_reduce_sum(void* data, int64_t count, DType dtype, Stream& stream, CallTag) override {
    check_summable("all_reduce_sum", dtype);
    if (count == 0) return;
    connection_.run({"all_reduce_sum", count, dtype}, [&](ncclComm_t comm) {
      return library_->all_reduce(data, data, static_cast<size_t>(count), type_of(dtype), ncclSum,
                                  comm, cuda::handle(stream));
    });
  }

  void reduce_scatter_sum(const void* in, void* out, int64_t count, DType dtype, Stream& stream,
                          CallTag) override {
    check_summable("reduce_scatter_sum", dtype);
    if (count == 0) return;
    connection_.run({"reduce_scatter_sum", count, dtype}, [&](ncclComm_t comm) {
      return library_->reduce_scatter(in, out, static_cast<size_t>(count), type_of(dtype), ncclSum,
                                      comm, cuda::handle(stream));
    });
  }

  void all_gather(const void* in, void* out, int64_t count, DType dtype, Stream& stream,
                  CallTag) override {
    if (count == 0) return;
    connection_.run({"all_gather", count, dtype}, [&](ncclComm_t comm) {
      return library_->all_gather(in, out, static_cast<size_t>(count), type_of(dtype), comm,
                                  cuda::handle(stream));
    });
  }

  void broadcast(void* data, int64_t count, DType dtype, int root, Stream& stream,
                 CallTag) override {
    const Call call = with_peer("broadcast", count, dtype, "from rank", root, /*other=*/false);
    if (count == 0) return;
    connection_.run(call, [&](ncclComm_t comm) {
      return library_->broadcast(data, data, static_cast<size_t>(count), type_of(dtype), root, comm,
                                 cuda::handle(stream));
    });
  }

  void send(const void* data, int64_t count, DType dtype, int to, Stream& stream,
            CallTag) override {
    const Call call = with_peer("send", count, dtype, "to rank", to, /*other=*/true);
    if (count == 0) return;
    connection_.run(call, [&](ncclComm_t comm) {
      return library_->send(data, static_cast<size_t>(count), type_of(dtype), to, comm,
                            cuda::handle(stream));
    });
  }

  void recv(void* data, int64_t count, DType dtype, int from, Stream& stream, CallTag) override {
    const Call call = with_peer("recv", count, dtype, "from rank", from, /*other=*/true);
    if (count == 0) return;
    connection_.run(call, [&](ncclComm_t comm) {
      return library_->recv(data, static_cast<size_t>(count), type_of(dtype), from, comm,
                            cuda::handle(stream));
    });
  }

  void barrier(Stream& stream) override {
    all_reduce_sum(barrier_buffer_.data(), 1, DType::kF32, stream, {});
  }

  void cancel() noexcept override { connection_.cancel(); }

  std::unique_ptr<Communicator> split(int color, int key) override {
    auto host = host_->split(color, key);
    ncclConfig_t config = non_blocking();
    ncclComm_t part = nullptr;
    const auto start = [&](ncclComm_t comm) {
      const ncclResult_t result = library_->comm_split(comm, color, key, &part, &config);
      return result == ncclSuccess ? ncclInProgress : result;  // it returns before it has finished
    };
    connection_.run({"split"}, start, Connection::kTimeout);
    return std::make_unique<NcclCommunicator>(library_, std::move(host), device_, shared_failure_,
                                              [&](ncclComm_t* comm) {
                                                *comm = part;
                                                return ncclInProgress;
                                              });
  }

  [[noreturn]] void abort(int exit_code) noexcept override {
    host_->abort(exit_code);
    std::_Exit(exit_code);  // for compilers that do not follow virtual calls
  }

 private:
  void clear(const Buffer& memory) {
    device_.fill_zero(memory.data(), memory.bytes(), *stream_);
    stream_->synchronize();
  }

  // Allocates without NCCL's allocator. Throws if that failed because the device is out of memory.
  Buffer allocate_unregistered(size_t bytes) {
    Buffer memory = device_.allocate(bytes);
    clear(memory);
    return memory;
  }

  Buffer registered(Buffer memory, void* registration) {
    auto holder = std::make_shared<Buffer>(std::move(memory));
    return Buffer(holder->data(), holder->bytes(), [this, holder, registration](void*) {
      connection_.release(
          [&](ncclComm_t comm) { return library_->comm_deregister(comm, registration); });
    });
  }

  // Returns the call for messages, in which the peer is a rank of the world. Throws CommError if
  // there is no such peer, or if it is this rank although `other` is true.
  Call with_peer(const char* name, int64_t count, DType dtype, const char* role, int peer,
                 bool other) const {
    const Call call = {name, count, dtype, role, placement().group.world_rank(peer)};
    const bool exists = peer >= 0 && peer < size();
    if (exists && !(other && peer == rank())) return call;
    throw CommError(
        fmt::format("{}: not a valid peer of rank {} of {}", describe(call), rank(), size()));
  }

  std::shared_ptr<const Library> library_;
  std::unique_ptr<Communicator> host_;
  Device& device_;
  std::unique_ptr<Stream> stream_;  // for work outside of steps
  std::shared_ptr<SharedFailure> shared_failure_;
  Connection connection_;
  Buffer barrier_buffer_;  // one element that a barrier sums
};

}  // namespace

Availability check_availability(Device& device) {
  if (device.kind() != DeviceKind::kCuda) return {"NCCL needs a GPU, but the device is the CPU"};
  try {
    Availability availability = {
        "", query_cuda().ids.at(static_cast<size_t>(cuda::properties(device).index))};
    availability.library = std::make_shared<Library>();
    return availability;
  } catch (const DeviceError& error) {
    return {error.what()};
  }
}

std::unique_ptr<Communicator> create_communicator(const Availability& availability,
                                                  std::unique_ptr<Communicator> host,
                                                  Device& device) {
  const Library& library = *availability.library;
  TRIREME_CUDA(cudaSetDevice(cuda::properties(device).index));
  ncclUniqueId id = {};
  together(*host, [&] {
    if (host->rank() != 0) return;
    const ncclResult_t result = library.get_unique_id(&id);
    if (result != ncclSuccess) throw CommError("ncclGetUniqueId: " + library.explain(result));
  });
  const std::string shared = broadcast(*host, std::string(id.internal, sizeof id.internal), 0);
  std::memcpy(id.internal, shared.data(), sizeof id.internal);
  const Placement placement = host->placement();
  ncclConfig_t config = non_blocking();
  return std::make_unique<NcclCommunicator>(
      availability.library, std::move(host), device, std::make_shared<SharedFailure>(),
      [&](ncclComm_t* comm) {
        return library.comm_init(comm, placement.ranks, id, placement.rank, &config);
      });
}

}  // namespace trireme::comm::nccl
