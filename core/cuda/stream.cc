#include "core/cuda/stream.h"

#include "core/cuda/cuda.h"
#include "core/cuda/recording.h"

namespace trireme::cuda {
namespace {

EventHandle make_event(int device, EventKind kind) {
  use_device(device);
  cudaEvent_t event = nullptr;
  const unsigned flags = kind == EventKind::kTimed ? cudaEventDefault : cudaEventDisableTiming;
  TRIREME_CUDA(cudaEventCreateWithFlags(&event, flags));
  return EventHandle(event);
}

StreamHandle make_stream(int device, StreamKind kind) {
  use_device(device);
  int least = 0, greatest = 0;
  TRIREME_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  const int priority = kind == StreamKind::kBackground ? greatest : least;
  cudaStream_t stream = nullptr;
  TRIREME_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority));
  return StreamHandle(stream);
}

}  // namespace

bool try_device(int index) noexcept {
  thread_local int used = -1;
  if (used == index) return true;
  if (cudaSetDevice(index) != cudaSuccess) return false;
  used = index;
  return true;
}

void use_device(int index) {
  if (!try_device(index)) check(cudaGetLastError(), "cudaSetDevice");
}

CudaEvent::CudaEvent(int device, EventKind kind, std::shared_ptr<HostTasks> tasks)
    : device_(device), kind_(kind), tasks_(std::move(tasks)), handle_(make_event(device, kind)) {}

void CudaEvent::synchronize() {
  use_device(device_);
  TRIREME_CUDA(cudaEventSynchronize(handle_.get()));
  tasks_->rethrow(ticket_);
}

void CudaEvent::record(cudaStream_t stream, bool captured) {
  // In a recording, an event of kind kOrder is only an edge of the graph. A timed event is recorded
  // by every replay, whose tickets are not known yet.
  const bool external = captured && kind_ == EventKind::kTimed;
  TRIREME_CUDA(cudaEventRecordWithFlags(
      handle_.get(), stream, external ? cudaEventRecordExternal : cudaEventRecordDefault));
  ticket_ = captured ? HostTasks::kAll : tasks_->latest_ticket();
  recorded_ = true;
}

CudaStream::CudaStream(int device, StreamKind kind, std::shared_ptr<HostTasks> tasks)
    : device_(device), tasks_(std::move(tasks)), handle_(make_stream(device, kind)) {}

CudaStream::~CudaStream() {
  // Queued tasks use objects that are about to be destroyed. Failures have been reported already,
  // or nobody waited for them.
  if (try_device(device_)) cudaStreamSynchronize(handle_.get());
}

cudaStream_t CudaStream::handle() const {
  use_device(device_);
  return handle_.get();
}

bool CudaStream::captured() const {
  if (!CudaRecording::current()) return false;
  auto status = cudaStreamCaptureStatusNone;
  TRIREME_CUDA(cudaStreamIsCapturing(handle_.get(), &status));
  return status != cudaStreamCaptureStatusNone;
}

void CudaStream::record(Event& event) {
  static_cast<CudaEvent&>(event).record(handle(), captured());
}

void CudaStream::wait(Event& event) {
  const auto& cuda_event = static_cast<const CudaEvent&>(event);
  if (!cuda_event.recorded()) return;
  TRIREME_CUDA(cudaStreamWaitEvent(handle(), cuda_event.handle(), cudaEventWaitDefault));
}

void CudaStream::run(Task task) {
  if (captured()) {
    CudaRecording::current()->add(handle(), task);
  } else {
    tasks_->queue(handle(), task);
  }
}

void CudaStream::synchronize() {
  TRIREME_CUDA(cudaStreamSynchronize(handle()));
  tasks_->rethrow(HostTasks::kAll);
}

}  // namespace trireme::cuda
