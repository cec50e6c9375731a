#include "comm/staged/staged_communicator.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "comm/memory.h"
#include "comm/staged/pin.h"

namespace trireme::comm {
namespace {

constexpr size_t kStagingBytes = 4 << 20;

// Pinned host memory in which the host communicator is fastest.
struct StagingBuffer {
  StagingBuffer(Communicator& host, Device& device, size_t bytes)
      : memory(host.allocate(bytes)), pinned(pin(memory, device)) {}

  std::byte* data() const { return memory.data(); }

  Buffer memory;
  Buffer pinned;  // must be destroyed before the memory
};

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> host, Device& device)
      : host_(std::move(host)), device_(device) {
    if (alone()) return;
    staging_ = std::make_unique<StagingBuffer>(*host_, device, kStagingBytes);
  }

  const Placement& placement() const override { return host_->placement(); }
  std::string transport() const override {
    return alone() ? host_->transport() : host_->transport() + " through host memory";
  }
  // False on GPUs: the host tasks of all streams may run on one thread, so that an operation
  // waiting for other ranks would block all others.
  bool concurrent() const override {
    return host_->concurrent() && (alone() || device_.kind() == DeviceKind::kCpu);
  }
  std::string failure() const override { return host_->failure(); }
  Ledger& ledger() override { return host_->ledger(); }

  Buffer allocate(size_t bytes) override {
    auto memory = std::make_shared<Buffer>(device_.allocate(bytes));
    const auto stream = device_.create_stream(StreamKind::kCompute);
    device_.fill_zero(memory->data(), bytes, *stream);
    stream->synchronize();
    if (!alone()) {
      auto staging = std::make_unique<StagingBuffer>(*host_, device_, bytes);
      std::lock_guard lock(mutex_);
      allocations_.push_back({memory->data(), std::move(staging)});
    }
    std::byte* data = memory->data();
    return Buffer(data, bytes, [this, memory](void*) { release(memory->data()); });
  }

  std::unique_ptr<HostMemory> share(size_t bytes) override { return host_->share(bytes); }

  void all_reduce_sum(void* data, int64_t count, DType dtype, Stream& stream,
                      CallTag tag) override {
    check_summable("all_reduce_sum", dtype);
    if (alone() || count == 0) return;
    if (std::byte* staging = find_staging_buffer(data, bytes_of(count, dtype))) {
      return sum(data, staging, count, dtype, stream, tag);
    }
    in_pieces(count, dtype, 1, [&](int64_t first, int64_t n) {
      sum(at(data, first, dtype), staging_->data(), n, dtype, stream, tag);
    });
  }

  void reduce_scatter_sum(const void* in, void* out, int64_t count, DType dtype, Stream& stream,
                          CallTag tag) override {
    check_summable("reduce_scatter_sum", dtype);
    if (alone()) return copy(out, in, count, dtype, stream);
    in_pieces(count, dtype, size(), [&](int64_t first, int64_t n) {
      for (int rank = 0; rank < size(); ++rank) {
        copy(at(staging_->data(), rank * n, dtype), at(in, rank * count + first, dtype), n, dtype,
             stream);
      }
      std::byte* result = at(staging_->data(), rank() * n, dtype);
      host_->reduce_scatter_sum(staging_->data(), result, n, dtype, stream, tag);
      copy(at(out, first, dtype), result, n, dtype, stream);
    });
  }

  void all_gather(const void* in, void* out, int64_t count, DType dtype, Stream& stream,
                  CallTag tag) override {
    if (alone()) return copy(out, in, count, dtype, stream);
    in_pieces(count, dtype, size(), [&](int64_t first, int64_t n) {
      std::byte* own = at(staging_->data(), rank() * n, dtype);
      copy(own, at(in, first, dtype), n, dtype, stream);
      host_->all_gather(own, staging_->data(), n, dtype, stream, tag);
      for (int rank = 0; rank < size(); ++rank) {
        copy(at(out, rank * count + first, dtype), at(staging_->data(), rank * n, dtype), n, dtype,
             stream);
      }
    });
  }

  void broadcast(void* data, int64_t count, DType dtype, int root, Stream& stream,
                 CallTag tag) override {
    if (alone()) return host_->broadcast(data, count, dtype, root, stream, tag);
    in_pieces(count, dtype, 1, [&](int64_t first, int64_t n) {
      std::byte* piece = at(data, first, dtype);
      if (rank() == root) copy(staging_->data(), piece, n, dtype, stream);
      host_->broadcast(staging_->data(), n, dtype, root, stream, tag);
      if (rank() != root) copy(piece, staging_->data(), n, dtype, stream);
    });
  }

  void send(const void* data, int64_t count, DType dtype, int to, Stream& stream,
            CallTag tag) override {
    if (alone()) return host_->send(data, count, dtype, to, stream, tag);
    in_pieces(count, dtype, 1, [&](int64_t first, int64_t n) {
      copy(staging_->data(), at(data, first, dtype), n, dtype, stream);
      host_->send(staging_->data(), n, dtype, to, stream, tag);
    });
  }

  void recv(void* data, int64_t count, DType dtype, int from, Stream& stream,
            CallTag tag) override {
    if (alone()) return host_->recv(data, count, dtype, from, stream, tag);
    in_pieces(count, dtype, 1, [&](int64_t first, int64_t n) {
      host_->recv(staging_->data(), n, dtype, from, stream, tag);
      copy(at(data, first, dtype), staging_->data(), n, dtype, stream);
    });
  }

  void barrier(Stream& stream) override { host_->barrier(stream); }

  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<StagedCommunicator>(host_->split(color, key), device_);
  }

  [[noreturn]] void abort(int exit_code) noexcept override {
    host_->abort(exit_code);
    std::_Exit(exit_code);  // for compilers that do not follow virtual calls
  }

 private:
  // A buffer returned by allocate().
  struct Allocation {
    std::byte* data;
    std::unique_ptr<StagingBuffer> staging;  // of the same size
  };

  bool alone() const { return size() == 1; }

  // Calls body(first element, count) for pieces of which `copies` fit into the staging buffer.
  template <class Body>
  void in_pieces(int64_t count, DType dtype, int copies, Body&& body) {
    const auto max_count =
        static_cast<int64_t>(kStagingBytes / size_of(dtype) / static_cast<size_t>(copies));
    for (int64_t first = 0; first < count; first += max_count) {
      body(first, std::min(count - first, max_count));
    }
  }

  void copy(void* to, const void* from, int64_t count, DType dtype, Stream& stream) {
    if (to != from) device_.copy(to, from, bytes_of(count, dtype), stream);
  }

  void sum(void* data, std::byte* staging, int64_t count, DType dtype, Stream& stream,
           CallTag tag) {
    copy(staging, data, count, dtype, stream);
    host_->all_reduce_sum(staging, count, dtype, stream, tag);
    copy(data, staging, count, dtype, stream);
  }

  // Returns the host memory that corresponds to device memory from allocate(), or null for other
  // memory.
  std::byte* find_staging_buffer(const void* data, size_t bytes) {
    const auto begin = reinterpret_cast<uintptr_t>(data);
    std::lock_guard lock(mutex_);
    for (const Allocation& each : allocations_) {
      const auto own = reinterpret_cast<uintptr_t>(each.data);
      if (begin >= own && begin + bytes <= own + each.staging->memory.bytes()) {
        return each.staging->data() + (begin - own);
      }
    }
    return nullptr;
  }

  void release(const std::byte* data) {
    // Declared before the lock: destroying it is collective and must happen without the lock.
    std::unique_ptr<StagingBuffer> staging;
    std::lock_guard lock(mutex_);
    const auto found =
        std::ranges::find_if(allocations_, [&](const auto& each) { return each.data == data; });
    if (found == allocations_.end()) return;
    staging = std::move(found->staging);
    allocations_.erase(found);
  }

  std::unique_ptr<Communicator> host_;
  Device& device_;
  std::unique_ptr<StagingBuffer> staging_;  // null in a world of one
  std::mutex mutex_;                        // guards allocations_
  std::vector<Allocation> allocations_;
};

}  // namespace

std::unique_ptr<Communicator> create_staged_communicator(std::unique_ptr<Communicator> host,
                                                         Device& device) {
  return std::make_unique<StagedCommunicator>(std::move(host), device);
}

}  // namespace trireme::comm
