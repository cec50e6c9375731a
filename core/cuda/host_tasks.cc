#include "core/cuda/host_tasks.h"

#include <algorithm>
#include <utility>

#include "core/cuda/cuda.h"

namespace trireme::cuda {

void HostTasks::queue(cudaStream_t stream, const Task& task) {
  Slot& slot = acquire();
  slot.task = task;
  slot.ticket = draw_ticket();
  const cudaError_t result = cudaLaunchHostFunc(stream, execute, &slot);
  if (result != cudaSuccess) release(slot);
  check(result, "cudaLaunchHostFunc");
}

void HostTasks::record(cudaStream_t stream, const Task& task, std::deque<Slot>& slots) {
  Slot& slot = slots.emplace_back();
  slot.owner = this;
  slot.task = task;
  slot.recorded = true;
  TRIREME_CUDA(cudaLaunchHostFunc(stream, execute, &slot));
}

void HostTasks::execute(void* data) noexcept {
  Slot& slot = *static_cast<Slot*>(data);
  HostTasks& self = *slot.owner;
  std::unique_lock lock(self.mutex_);
  if (!self.failure_) {
    lock.unlock();
    std::exception_ptr failure;
    try {
      Task task = slot.task;  // copy: each replay starts from the recorded state
      task();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (!self.failure_) self.failure_ = failure;
  }
  if (self.failure_) self.failed_from_ = std::min(self.failed_from_, slot.ticket);
  lock.unlock();
  if (!slot.recorded) self.release(slot);
}

void HostTasks::fail(std::exception_ptr failure) {
  std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(failure);
  failed_from_ = 0;
}

void HostTasks::rethrow(uint64_t until) {
  std::lock_guard lock(mutex_);
  if (failure_ && failed_from_ <= until) std::rethrow_exception(failure_);
}

HostTasks::Slot& HostTasks::acquire() {
  std::lock_guard lock(mutex_);
  if (free_) return *std::exchange(free_, free_->next);
  Slot& slot = slots_.emplace_back();
  slot.owner = this;
  return slot;
}

void HostTasks::release(Slot& slot) {
  std::lock_guard lock(mutex_);
  slot.next = free_;
  free_ = &slot;
}

}  // namespace trireme::cuda
