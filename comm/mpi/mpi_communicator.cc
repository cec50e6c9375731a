#include "comm/mpi/mpi_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>

#include "comm/mpi/session.h"
#include "core/error.h"
#include "core/fault_point.h"
#include "core/host_name.h"

namespace trireme::mpi {
namespace {

// Calls that hold a part for each rank cannot be cut into smaller ones.
int whole(const char* operation, int64_t count) {
  if (count > std::numeric_limits<int>::max()) {
    throw CommError(fmt::format("{} of {} elements for each rank: MPI takes at most {}", operation,
                                count, std::numeric_limits<int>::max()));
  }
  return static_cast<int>(count);
}

Placement place(const Comm& all, const Comm& host, const Comm& leaders) {
  Placement placement = {.rank = all.rank(),
                         .ranks = all.size(),
                         .local_rank = host.rank(),
                         .local_ranks = host.size(),
                         .host = 0,
                         .hosts = 1,
                         .host_name = host_name()};
  std::array<int, 2> hosts = {};
  if (leaders) hosts = {leaders.rank(), leaders.size()};
  check(MPI_Bcast(hosts.data(), 2, MPI_INT, 0, host.get()), {"MPI_Bcast"});
  placement.host = hosts[0];
  placement.hosts = hosts[1];
  return placement;
}

}  // namespace

MpiCommunicator::MpiCommunicator(Comm all, Comm host, std::shared_ptr<Ledger> ledger)
    : ledger_(std::move(ledger)),
      lane_(ledger_->add_lane()),
      all_(std::move(all)),
      host_(std::move(host)) {
  leaders_ = all_.split(host_.rank() == 0 ? 0 : MPI_UNDEFINED, all_.rank());
  placement_ = place(all_, host_, leaders_);
  sum_ = std::make_unique<HostSum>(host_, leaders_, placement_.hosts, placement_.rank, reduction_,
                                   *ledger_);
}

std::string MpiCommunicator::failure() const {
  const std::string lost = sum_->failure();
  return lost.empty() ? ledger_->verdict() : lost;
}

Buffer MpiCommunicator::allocate(size_t bytes) {
  auto window = std::make_unique<SharedWindow>(host_, bytes);
  std::byte* data = window->own();
  std::lock_guard lock(mutex_);
  allocations_.push_back(std::make_unique<Allocation>(Allocation{std::move(window), ++allocated_}));
  return Buffer(data, bytes, [this](void* memory) { release(memory); });
}

void MpiCommunicator::release(const void* data) {
  std::unique_ptr<Allocation> allocation;
  {
    std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(
        allocations_, [&](const auto& each) { return each->window->own() == data; });
    allocation = std::move(*found);
    allocations_.erase(found);
  }
}

const MpiCommunicator::Allocation* MpiCommunicator::find(const void* data, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  std::lock_guard lock(mutex_);
  for (const auto& allocation : allocations_) {
    const auto own = reinterpret_cast<uintptr_t>(allocation->window->own());
    if (begin >= own && begin + bytes <= own + allocation->window->bytes()) return allocation.get();
  }
  return nullptr;
}

template <class Work>
void MpiCommunicator::run(Stream& stream, const Call& call, Work work) {
  const int64_t bytes =
      std::max<int64_t>(call.count, 0) * static_cast<int64_t>(size_of(call.dtype));
  // As it was called: what is recorded runs when the host is somewhere else. A task is small.
  const auto step = static_cast<uint32_t>(ledger_->page().step);
  if (fault_point("call", bucket_)) return;
  stream.run(Task([this, name = call.name, bytes, bucket = bucket_, step, work] {
    const uint64_t number = ledger_->begin(lane_, name, bytes, bucket, step);
    sum_->about({number, step, bucket});
    try {
      fault_point("collective", bucket);
      work(*this);
    } catch (...) {
      sum_->fail();
      throw;
    }
    ledger_->end(lane_);
  }));
}

void MpiCommunicator::all_reduce_sum(void* data, int64_t count, DType dtype, Stream& stream) {
  check_summable("all_reduce_sum", dtype);
  if (size() == 1 || count == 0) return;
  const size_t bytes = static_cast<size_t>(count) * size_of(dtype);
  if (bytes <= HostSum::kSlotBytes) {
    return run(stream, {"all_reduce_sum", count, dtype},
               [data, count, dtype](auto& self) { self.sum_->sum_small(data, count, dtype); });
  }
  const Allocation* allocation = find(data, bytes);
  if (!allocation) {
    return run(stream, {"all_reduce_sum", count, dtype}, [data, count, dtype](auto& self) {
      self.reduction_.sum_in_place(self.all_.get(), data, count, dtype);
    });
  }
  run(stream, {"all_reduce_sum", count, dtype}, [allocation, data, count, dtype](auto& self) {
    const SharedWindow& window = *allocation->window;
    const auto offset = static_cast<size_t>(static_cast<std::byte*>(data) - window.own());
    self.sum_->sum_window(window, allocation->number, offset, count, dtype);
  });
}

void MpiCommunicator::reduce_scatter_sum(const void* in, void* out, int64_t count, DType dtype,
                                         Stream& stream) {
  check_summable("reduce_scatter_sum", dtype);
  const int n = whole("reduce_scatter_sum", count);
  const Call call = {"MPI_Reduce_scatter_block", n, dtype};
  run(stream, call, [in, out, n, dtype](auto& self) {
    check(MPI_Reduce_scatter_block(in, out, n, type_of(dtype), self.reduction_.sum_of(dtype),
                                   self.all_.get()),
          {"MPI_Reduce_scatter_block", n, dtype});
  });
}

void MpiCommunicator::all_gather(const void* in, void* out, int64_t count, DType dtype,
                                 Stream& stream) {
  const int n = whole("all_gather", count);
  if (in == at(out, count * rank(), dtype)) in = MPI_IN_PLACE;
  run(stream, {"MPI_Allgather", n, dtype}, [in, out, n, dtype](auto& self) {
    check(MPI_Allgather(in, n, type_of(dtype), out, n, type_of(dtype), self.all_.get()),
          {"MPI_Allgather", n, dtype});
  });
}

void MpiCommunicator::broadcast(void* data, int64_t count, DType dtype, int root, Stream& stream) {
  run(stream, {"MPI_Bcast", count, dtype}, [data, count, dtype, root](auto& self) {
    in_parts(count, [&](int64_t first, int n) {
      check(MPI_Bcast(at(data, first, dtype), n, type_of(dtype), root, self.all_.get()),
            {"MPI_Bcast", n, dtype, "from rank", root});
    });
  });
}

void MpiCommunicator::send(const void* data, int64_t count, DType dtype, int to, Stream& stream) {
  run(stream, {"MPI_Send", count, dtype}, [data, count, dtype, to](auto& self) {
    in_parts(count, [&](int64_t first, int n) {
      check(MPI_Send(at(data, first, dtype), n, type_of(dtype), to, 0, self.all_.get()),
            {"MPI_Send", n, dtype, "to rank", to});
    });
  });
}

void MpiCommunicator::recv(void* data, int64_t count, DType dtype, int from, Stream& stream) {
  run(stream, {"MPI_Recv", count, dtype}, [data, count, dtype, from](auto& self) {
    in_parts(count, [&](int64_t first, int n) {
      const Call call = {"MPI_Recv", n, dtype, "from rank", from};
      MPI_Status status;
      check(MPI_Recv(at(data, first, dtype), n, type_of(dtype), from, 0, self.all_.get(), &status),
            call);
      int received = 0;
      check(MPI_Get_count(&status, type_of(dtype), &received), call);
      if (received != n) {
        throw CommError(fmt::format("recv of {} {} from rank {}: it sent {}", n, name_of(dtype),
                                    from, received));
      }
    });
  });
}

void MpiCommunicator::barrier(Stream& stream) {
  run(stream, {"barrier"}, [](auto& self) { self.sum_->barrier(); });
}

std::unique_ptr<Communicator> MpiCommunicator::split(int colour, int key) {
  if (colour < 0) throw CommError(fmt::format("split: colour {} is negative", colour));
  Comm all = all_.split(colour, key);
  Comm host = all.split(placement_.host, all.rank());
  return std::make_unique<MpiCommunicator>(std::move(all), std::move(host), ledger_);
}

void MpiCommunicator::abort(int exit_code) noexcept {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

std::unique_ptr<Communicator> create_communicator(std::optional<int> host_colour) {
  MPI_Comm duplicate = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &duplicate), {"MPI_Comm_dup"});
  Comm all(duplicate);
  Comm host = all.split_by_host();
  if (host_colour) host = host.split(*host_colour, host.rank());
  return std::make_unique<MpiCommunicator>(std::move(all), std::move(host),
                                           std::make_shared<Ledger>());
}

}  // namespace trireme::mpi
