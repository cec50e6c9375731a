// Streams and events of a CUDA device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <type_traits>

#include "core/cuda/host_tasks.h"
#include "core/device.h"

namespace trireme::cuda {

// Makes the device current for CUDA calls of this thread. use_device throws DeviceError if that
// fails; try_device returns false, for use in destructors.
void use_device(int index);
bool try_device(int index) noexcept;

// Deleter for CUDA handles.
template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const {
    destroy(handle);
  }
};
using StreamHandle =
    std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy<cudaStreamDestroy>>;
using EventHandle = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy<cudaEventDestroy>>;

class CudaEvent final : public Event {
 public:
  CudaEvent(int device, EventKind kind, std::shared_ptr<HostTasks> tasks);
  ~CudaEvent() override { try_device(device_); }

  void synchronize() override;
  // `captured` says whether the stream is being captured into a graph.
  void record(cudaStream_t stream, bool captured);
  bool recorded() const { return recorded_; }
  cudaEvent_t handle() const { return handle_.get(); }

 private:
  int device_;
  EventKind kind_;
  std::shared_ptr<HostTasks> tasks_;
  EventHandle handle_;
  bool recorded_ = false;
  uint64_t ticket_ = 0;  // ticket of the most recent work before the event
};

class CudaStream final : public Stream {
 public:
  CudaStream(int device, StreamKind kind, std::shared_ptr<HostTasks> tasks);
  ~CudaStream() override;

  DeviceKind device() const override { return DeviceKind::kCuda; }
  void record(Event& event) override;
  void wait(Event& event) override;
  void run(Task task) override;
  void synchronize() override;

  // Returns the CUDA stream and makes its device current for this thread.
  cudaStream_t handle() const;

 private:
  bool captured() const;

  int device_;
  std::shared_ptr<HostTasks> tasks_;
  StreamHandle handle_;
};

}  // namespace trireme::cuda
