#include <fmt/format.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "comm/communicator.h"
#include "core/host_name.h"

namespace trireme::comm {
namespace {

class OwnMemory final : public HostMemory {
 public:
  explicit OwnMemory(size_t bytes) : bytes_(bytes) {}
  std::span<std::byte* const> parts() const override { return {&part_, 1}; }

 private:
  std::vector<std::byte> bytes_;  // as aligned as any scalar type
  std::byte* part_ = bytes_.data();
};

// The communicator of a world of one rank, in which sums need no work.
class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Ledger> ledger, Group group) : ledger_(std::move(ledger)) {
    placement_.host_name = host_name();
    placement_.group = std::move(group);
  }

  const Placement& placement() const override { return placement_; }
  std::string transport() const override { return "one rank"; }
  Ledger& ledger() override { return *ledger_; }

  Buffer allocate(size_t bytes) override {
    constexpr size_t kAlignment = 4096;
    const size_t rounded = (bytes / kAlignment + 1) * kAlignment;
    void* data = std::aligned_alloc(kAlignment, rounded);
    if (!data) throw CommError(fmt::format("allocate: no memory for {} bytes", bytes));
    std::memset(data, 0, rounded);
    return Buffer(data, bytes, [](void* memory) { std::free(memory); });
  }

  std::unique_ptr<HostMemory> share(size_t bytes) override {
    return std::make_unique<OwnMemory>(bytes);
  }

  void all_reduce_sum(void*, int64_t, DType dtype, Stream&, CallTag) override {
    check_summable("all_reduce_sum", dtype);
  }
  void reduce_scatter_sum(const void* in, void* out, int64_t count, DType dtype, Stream& stream,
                          CallTag) override {
    check_summable("reduce_scatter_sum", dtype);
    copy(in, out, count, dtype, stream);
  }
  void all_gather(const void* in, void* out, int64_t count, DType dtype, Stream& stream,
                  CallTag) override {
    copy(in, out, count, dtype, stream);
  }
  void broadcast(void*, int64_t, DType, int root, Stream&, CallTag) override {
    if (root != 0) throw CommError(fmt::format("broadcast: no rank {} in a world of 1", root));
  }
  void send(const void*, int64_t, DType, int to, Stream&, CallTag) override {
    throw CommError(fmt::format("send: no peer {} in a world of 1", to));
  }
  void recv(void*, int64_t, DType, int from, Stream&, CallTag) override {
    throw CommError(fmt::format("recv: no peer {} in a world of 1", from));
  }
  void barrier(Stream&) override {}
  std::unique_ptr<Communicator> split(int, int) override {
    return std::make_unique<LocalCommunicator>(ledger_, subgroup(placement_.group, ++splits_, {0}));
  }
  [[noreturn]] void abort(int exit_code) noexcept override { std::_Exit(exit_code); }

 private:
  static void copy(const void* in, void* out, int64_t count, DType dtype, Stream& stream) {
    if (in == out) return;
    const size_t bytes = static_cast<size_t>(count) * size_of(dtype);
    stream.run(Task([=] { std::memcpy(out, in, bytes); }));
  }

  std::shared_ptr<Ledger> ledger_;
  Placement placement_;
  uint64_t splits_ = 0;
};

}  // namespace

void check_summable(const char* operation, DType dtype) {
  if (dtype != DType::kI32 && dtype != DType::kU8) return;
  throw CommError(
      fmt::format("{} takes f32, f64, i64, f16 or bf16, not {}", operation, name_of(dtype)));
}

std::unique_ptr<Communicator> create_local_communicator() {
  return std::make_unique<LocalCommunicator>(std::make_shared<Ledger>(), world_group(1));
}

}  // namespace trireme::comm
