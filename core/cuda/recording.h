// A recording implemented as a CUDA graph that was captured from streams.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "core/cuda/host_tasks.h"
#include "core/cuda/stream.h"
#include "core/device.h"

namespace trireme::cuda {

class CudaRecording final : public Recording {
 public:
  CudaRecording(CudaStream& stream, const std::function<void()>& encode, int device,
                std::shared_ptr<HostTasks> tasks);
  ~CudaRecording() override;

  void replay(Stream& stream) override;
  void add(cudaStream_t stream, const Task& task) { tasks_->record(stream, task, slots_); }

  // Returns the recording that this thread is capturing, or null if there is none.
  static CudaRecording* current();

 private:
  using GraphHandle =
      std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, Destroy<cudaGraphDestroy>>;
  using ExecutableHandle =
      std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroy<cudaGraphExecDestroy>>;

  GraphHandle capture(cudaStream_t stream, const std::function<void()>& encode);

  std::shared_ptr<HostTasks> tasks_;
  std::deque<HostTasks::Slot> slots_;
  CudaEvent replayed_;
  ExecutableHandle executable_;
};

}  // namespace trireme::cuda
