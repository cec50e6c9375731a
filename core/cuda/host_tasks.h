// Runs host tasks in the streams of a CUDA device and keeps the exceptions that they throw.
//
// Tasks and replays are numbered with tickets in the order in which they are queued. After a task
// has thrown, later tasks are skipped, which counts as a failure too. Therefore every task with a
// ticket below the lowest failed one is known to have run.
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

  // Storage of a task from the time it is queued until it has run, or as long as it can be
  // replayed.
  struct Slot {
    HostTasks* owner = nullptr;
    Task task;
    uint64_t ticket = 0;
    bool recorded = false;
    Slot* next = nullptr;  // next free slot
  };

  HostTasks() = default;
  HostTasks(const HostTasks&) = delete;
  HostTasks& operator=(const HostTasks&) = delete;

  uint64_t draw_ticket() { return ++tickets_; }
  uint64_t latest_ticket() const { return tickets_; }

  // Queues a task that runs once.
  void queue(cudaStream_t stream, const Task& task);
  // Adds a task to the stream capture in progress. Each replay runs it; `slots` owns it.
  void record(cudaStream_t stream, const Task& task, std::deque<Slot>& slots);

  // Reports `failure` as though a task before all others had thrown it. Ignored if there already is
  // a failure.
  void fail(std::exception_ptr failure);
  // Throws the exception of a failed task if the failure affects any ticket up to `until`.
  void rethrow(uint64_t until);

 private:
  static void execute(void* slot) noexcept;
  Slot& acquire();
  void release(Slot& slot);

  std::atomic<uint64_t> tickets_ = 0;
  std::mutex mutex_;
  std::deque<Slot> slots_;
  Slot* free_ = nullptr;
  std::exception_ptr failure_;
  uint64_t failed_from_ = kAll;
};

}  // namespace trireme::cuda
