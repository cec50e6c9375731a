// Work of the host within the streams of one CUDA device, and what it threw.
//
// Whatever a stream is given gets a ticket, in the order of the calls. Once a task has thrown,
// tasks that come to run later are skipped, which counts as their failure too; so everything up to
// the lowest ticket that failed is known to have run.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>

#include "core/device.h"

namespace trireme::cuda {

class HostTasks {
 public:
  static constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();

  // Where a task is from when it is queued until it has run, or as long as it can be replayed.
  struct Slot {
    HostTasks* owner = nullptr;
    Task task;
    uint64_t ticket = 0;
    bool recorded = false;
    Slot* next = nullptr;  // that is free
  };

  HostTasks() = default;
  HostTasks(const HostTasks&) = delete;
  HostTasks& operator=(const HostTasks&) = delete;

  uint64_t draw_ticket() { return ++tickets_; }
  uint64_t latest_ticket() const { return tickets_; }

  // To be run once.
  void queue(cudaStream_t stream, const Task& task);
  // To be run by every replay of what the stream records, until the slot goes.
  void record(cudaStream_t stream, const Task& task, std::deque<Slot>& slots);

  // As though a task before all others had thrown it; of several failures the first stays.
  void fail(std::exception_ptr failure);
  // Throws what a task threw, if that concerns anything up to this ticket.
  void rethrow(uint64_t until);

 private:
  static void execute(void* slot) noexcept;
  Slot& take();
  void give_back(Slot& slot);

  std::atomic<uint64_t> tickets_ = 0;
  std::mutex mutex_;
  std::deque<Slot> slots_;
  Slot* free_ = nullptr;
  std::exception_ptr failure_;
  uint64_t failed_from_ = kAll;
};

}  // namespace trireme::cuda
