// The functions of the CUDA runtime that Trireme calls, with host memory as device memory.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "emulation.h"
#include "gpu.h"
#include "memory.h"

namespace trireme::emulation {
namespace {

int device_count() {
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"); visible && !*visible) return 0;
  const char* count = std::getenv("TRIREME_EMULATION_DEVICES");
  return count ? std::atoi(count) : 1;
}

// --- Helpers ---

std::string quantity(const char* call, size_t bytes) {
  return fmt::format("{} of {} bytes", call, bytes);
}

Place place_of(const void* data, size_t bytes) {
  const auto place = gpu().memory.place(data, bytes);
  require(place.has_value() && data != nullptr, cudaErrorInvalidValue);
  return *place;
}

cudaError_t allocate(void** data, size_t bytes, Place place) {
  return gpu().call([&](auto&) {
    require(data != nullptr, cudaErrorInvalidValue);
    gpu().forbid_in_capture();
    *data = bytes ? gpu().memory.allocate(bytes, place) : nullptr;
    require(bytes == 0 || *data, cudaErrorMemoryAllocation);
  });
}

cudaError_t release(void* data, Place place) {
  return gpu().call([&](auto& lock) {
    gpu().forbid_in_capture();
    gpu().wait_all(lock);
    require(!data || gpu().memory.release(data, place), cudaErrorInvalidValue);
  });
}

void copy(std::unique_lock<std::mutex>& lock, void* to, const void* from, size_t bytes,
          cudaStream_t stream) {
  StreamState& state = gpu().stream(stream);
  if (bytes == 0) return;
  const Place source = place_of(from, bytes), target = place_of(to, bytes);
  const bool pageable = source == Place::kPageable || target == Place::kPageable;
  // CUDA might allow it, but the memory could be freed before the replay.
  require(!pageable || !state.capture, cudaErrorStreamCaptureUnsupported);
  std::string name = quantity("a copy", bytes);
  if (source == Place::kPageable && target == Place::kDevice) {
    const auto* begin = static_cast<const char*>(from);
    gpu().submit(stream, {std::move(name), [to, staged = std::vector<char>(begin, begin + bytes)] {
                            std::memcpy(to, staged.data(), staged.size());
                          }});
    return;
  }
  gpu().submit(stream, {std::move(name), [=] { std::memmove(to, from, bytes); }});
  if (target == Place::kPageable || (source != Place::kDevice && target != Place::kDevice)) {
    if (!state.capture) gpu().wait(lock, state.last);
  }
}

bool is_recorded_in_capture(const EventState& event) { return event.capture != nullptr; }

void break_capture(const CapturePtr& capture) {
  capture->broken = cudaErrorStreamCaptureInvalidated;
}

// Until a graph reaches an event that it records, the event has its previous state, so a host wait
// for it might return immediately. Therefore this is an error.
void require_readable(const EventState& event) {
  require(!event.in_graph, cudaErrorInvalidResourceHandle);
  if (!is_recorded_in_capture(event)) return;
  break_capture(event.capture);
  throw Failure{cudaErrorCapturedEvent};
}

void wait_for_event(cudaStream_t handle, EventState& event) {
  StreamState& to = gpu().stream(handle);
  if (is_recorded_in_capture(event)) {
    require(!event.capture->ended, cudaErrorStreamCaptureIsolation);
    require(!to.capture || to.capture == event.capture, cudaErrorStreamCaptureMerge);
    to.capture = event.capture;
    for (size_t node : event.front) {
      if (std::find(to.front.begin(), to.front.end(), node) == to.front.end())
        to.front.push_back(node);
    }
    return;
  }
  if (to.capture) {
    break_capture(to.capture);
    throw Failure{cudaErrorStreamCaptureIsolation};
  }
  if (event.node) to.last = gpu().queue(handle, {"a wait"}, {to.last, event.node});
}

void record_event(cudaStream_t handle, const std::shared_ptr<EventState>& event, unsigned flags) {
  StreamState& from = gpu().stream(handle);
  require(from.device == event->device, cudaErrorInvalidResourceHandle);
  const bool external = flags & cudaEventRecordExternal;
  require(!external || from.capture, cudaErrorInvalidValue);
  if (from.capture && !external) {
    event->capture = from.capture;
    event->front = from.front;
    event->node = nullptr;
    return;
  }
  event->capture = nullptr;
  gpu().submit(handle, {"an event", [event] { event->time = Clock::now(); }}, event);
}

void check_shape(const Shape& shape) {
  const auto inside = [](const dim3& size, unsigned x, unsigned y, unsigned z) {
    return size.x > 0 && size.y > 0 && size.z > 0 && size.x <= x && size.y <= y && size.z <= z;
  };
  require(inside(shape.blocks, 0x7FFFFFFF, 65535, 65535) && inside(shape.threads, 1024, 1024, 64) &&
              shape.threads.x * shape.threads.y * shape.threads.z <= 1024,
          cudaErrorInvalidConfiguration);
  require(shape.shared_bytes <= 227 << 10, cudaErrorInvalidValue);
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, std::string name, std::function<void()> work,
                    bool communicates) {
  return gpu().call([&](auto&) {
    gpu().submit(stream, {std::move(name), std::move(work), communicates});
  });
}

cudaError_t launch(std::string name, const Shape& shape, cudaStream_t stream,
                   std::function<void()> thread) {
  return gpu().call([&](auto&) {
    check_shape(shape);
    require(gpu().stream(stream).device == current_device, cudaErrorInvalidResourceHandle);
    gpu().submit(stream, {std::move(name), [shape, thread = std::move(thread)] {
                            run_kernel(shape, thread, seed_of_node());
                          }});
  });
}

void set_seed(uint64_t seed) { gpu().set_seed(seed); }
void recover() { gpu().recover(); }

}  // namespace trireme::emulation

// --- The CUDA runtime ---

using namespace trireme::emulation;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count();
  return *count > 0 ? cudaSuccess : latest_error = cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device) {
  return trireme::emulation::gpu().call([&](auto&) {
    trireme::emulation::require(device >= 0 && device < device_count(), cudaErrorInvalidDevice);
    current_device = device;
  });
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return trireme::emulation::gpu().call([&](auto&) {
    trireme::emulation::require(device >= 0 && device < device_count(), cudaErrorInvalidDevice);
    *properties = {};
    std::strcpy(properties->name, "Emulated device");
    properties->major = 9;
    properties->multiProcessorCount = 4;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->sharedMemPerBlock = 48 << 10;
    properties->sharedMemPerBlockOptin = 227 << 10;
    properties->totalGlobalMem = trireme::emulation::Memory::kBytes;
    properties->l2CacheSize = 1 << 20;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  return trireme::emulation::gpu().call([&](auto&) {
    trireme::emulation::require(device >= 0 && device < device_count(), cudaErrorInvalidDevice);
    std::snprintf(id, static_cast<size_t>(bytes), "0000:%02x:00.0", device + 1);
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = std::exchange(latest_error, cudaSuccess);
  return trireme::emulation::gpu().failed() != cudaSuccess ? trireme::emulation::gpu().failed()
                                                           : error;
}

cudaError_t cudaPeekAtLastError() {
  return trireme::emulation::gpu().failed() != cudaSuccess ? trireme::emulation::gpu().failed()
                                                           : latest_error;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define NAME(name) \
  case name:       \
    return #name
    NAME(cudaSuccess);
    NAME(cudaErrorInvalidValue);
    NAME(cudaErrorMemoryAllocation);
    NAME(cudaErrorInvalidConfiguration);
    NAME(cudaErrorNoDevice);
    NAME(cudaErrorInvalidDevice);
    NAME(cudaErrorInvalidResourceHandle);
    NAME(cudaErrorIllegalState);
    NAME(cudaErrorNotReady);
    NAME(cudaErrorLaunchFailure);
    NAME(cudaErrorStreamCaptureUnsupported);
    NAME(cudaErrorStreamCaptureInvalidated);
    NAME(cudaErrorStreamCaptureMerge);
    NAME(cudaErrorStreamCaptureUnmatched);
    NAME(cudaErrorStreamCaptureUnjoined);
    NAME(cudaErrorStreamCaptureIsolation);
    NAME(cudaErrorStreamCaptureWrongThread);
    NAME(cudaErrorCapturedEvent);
    NAME(cudaErrorHostMemoryAlreadyRegistered);
    NAME(cudaErrorHostMemoryNotRegistered);
#undef NAME
    default:
      return "an error that the emulation does not produce";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorLaunchFailure ? trireme::emulation::gpu().failure_text()
                                         : "see CUDA's documentation";
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  return allocate(data, bytes, trireme::emulation::Place::kDevice);
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  return allocate(data, bytes, trireme::emulation::Place::kPinned);
}
cudaError_t cudaFree(void* data) { return release(data, trireme::emulation::Place::kDevice); }
cudaError_t cudaFreeHost(void* data) { return release(data, trireme::emulation::Place::kPinned); }

cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned) {
  return trireme::emulation::gpu().call([&](auto&) {
    trireme::emulation::gpu().forbid_in_capture();
    trireme::emulation::require(data && bytes > 0, cudaErrorInvalidValue);
    trireme::emulation::require(trireme::emulation::gpu().memory.pin(data, bytes),
                                cudaErrorHostMemoryAlreadyRegistered);
  });
}

cudaError_t cudaHostUnregister(void* data) {
  return trireme::emulation::gpu().call([&](auto& lock) {
    trireme::emulation::gpu().forbid_in_capture();
    trireme::emulation::gpu().wait_all(lock);
    trireme::emulation::require(trireme::emulation::gpu().memory.unpin(data),
                                cudaErrorHostMemoryNotRegistered);
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return trireme::emulation::gpu().call([&](auto&) {
    *total = trireme::emulation::Memory::kBytes;
    *free = trireme::emulation::Memory::kBytes - trireme::emulation::gpu().memory.used();
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return trireme::emulation::gpu().call([&](auto& lock) { copy(lock, to, from, bytes, stream); });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return trireme::emulation::gpu().call([&](auto&) {
    trireme::emulation::gpu().stream(stream);
    if (bytes == 0) return;
    trireme::emulation::require(place_of(to, bytes) != trireme::emulation::Place::kPageable,
                                cudaErrorInvalidValue);
    trireme::emulation::gpu().submit(
        stream, {quantity("a memset", bytes), [=] { std::memset(to, value, bytes); }});
  });
}

cudaError_t cudaDeviceSynchronize() {
  return trireme::emulation::gpu().call([&](auto& lock) {
    trireme::emulation::gpu().forbid_in_capture();
    trireme::emulation::gpu().wait_all(lock);
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* greatest) {
  *lowest = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return trireme::emulation::gpu().call([&](auto&) {
    *stream =
        trireme::emulation::gpu().streams.add(std::make_shared<trireme::emulation::StreamState>(
            trireme::emulation::StreamState{current_device}));
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return trireme::emulation::gpu().call([&](auto&) {
    if (const trireme::emulation::CapturePtr capture =
            trireme::emulation::gpu().stream(stream).capture)
      break_capture(capture);
    trireme::emulation::gpu().streams.remove(stream);
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return trireme::emulation::gpu().call([&](auto& lock) {
    const trireme::emulation::StreamState& stream = trireme::emulation::gpu().stream(handle);
    if (stream.capture) {
      break_capture(stream.capture);
      throw trireme::emulation::Failure{cudaErrorStreamCaptureUnsupported};
    }
    trireme::emulation::gpu().wait(lock, stream.last);
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return trireme::emulation::gpu().call([&](auto&) {
    const trireme::emulation::StreamState& stream = trireme::emulation::gpu().stream(handle);
    if (stream.capture) {
      break_capture(stream.capture);
      throw trireme::emulation::Failure{cudaErrorStreamCaptureUnsupported};
    }
    trireme::emulation::require(!stream.last || stream.last->done, cudaErrorNotReady);
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return trireme::emulation::gpu().call([&](auto&) {
    trireme::emulation::require(flags == 0, cudaErrorInvalidValue);
    wait_for_event(stream, *trireme::emulation::gpu().event(event));
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return trireme::emulation::gpu().call([&](auto&) {
    trireme::emulation::gpu().submit(stream, {"a host function", [=] { function(data); }});
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return trireme::emulation::gpu().call([&](auto&) {
    *event = trireme::emulation::gpu().events.add(std::make_shared<trireme::emulation::EventState>(
        trireme::emulation::EventState{current_device, !(flags & cudaEventDisableTiming)}));
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return trireme::emulation::gpu().call([&](auto&) {
    trireme::emulation::require(trireme::emulation::gpu().events.remove(event),
                                cudaErrorInvalidResourceHandle);
  });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return trireme::emulation::gpu().call(
      [&](auto&) { record_event(stream, trireme::emulation::gpu().event(event), flags); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return trireme::emulation::gpu().call([&](auto& lock) {
    const auto state = trireme::emulation::gpu().event(event);
    require_readable(*state);
    trireme::emulation::gpu().wait(lock, state->node);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return trireme::emulation::gpu().call([&](auto&) {
    const auto state = trireme::emulation::gpu().event(event);
    require_readable(*state);
    trireme::emulation::require(!state->node || state->node->done, cudaErrorNotReady);
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return trireme::emulation::gpu().call([&](auto&) {
    const auto begin = trireme::emulation::gpu().event(from),
               end = trireme::emulation::gpu().event(to);
    for (const auto& event : {begin, end}) {
      trireme::emulation::require(event->timed && event->node, cudaErrorInvalidResourceHandle);
      trireme::emulation::require(event->node->done, cudaErrorNotReady);
    }
    *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return trireme::emulation::gpu().call(
      [&](auto&) { trireme::emulation::gpu().begin_capture(stream, mode); });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return trireme::emulation::gpu().call([&](auto&) {
    *graph = nullptr;
    *graph = trireme::emulation::gpu().graphs.add(
        std::make_shared<trireme::emulation::Graph>(trireme::emulation::gpu().end_capture(stream)));
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return trireme::emulation::gpu().call([&](auto&) {
    const trireme::emulation::StreamState& stream = trireme::emulation::gpu().stream(handle);
    *status = !stream.capture                         ? cudaStreamCaptureStatusNone
              : stream.capture->broken == cudaSuccess ? cudaStreamCaptureStatusActive
                                                      : cudaStreamCaptureStatusInvalidated;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  return trireme::emulation::gpu().call([&](auto&) {
    const auto found = trireme::emulation::gpu().graphs.find(graph);
    trireme::emulation::require(found != nullptr, cudaErrorInvalidValue);
    *executable = trireme::emulation::gpu().executables.add(
        std::make_shared<trireme::emulation::Executable>(trireme::emulation::Executable{*found}));
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return trireme::emulation::gpu().call([&](auto&) {
    trireme::emulation::require(trireme::emulation::gpu().graphs.remove(graph),
                                cudaErrorInvalidValue);
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return trireme::emulation::gpu().call([&](auto&) {
    trireme::emulation::require(trireme::emulation::gpu().executables.remove(executable),
                                cudaErrorInvalidValue);
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  return trireme::emulation::gpu().call([&](auto&) {
    trireme::emulation::require(trireme::emulation::gpu().executables.find(executable) != nullptr,
                                cudaErrorInvalidValue);
    trireme::emulation::gpu().stream(stream);
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream) {
  return trireme::emulation::gpu().call([&](auto&) {
    const auto executable = trireme::emulation::gpu().executables.find(handle);
    trireme::emulation::require(executable != nullptr, cudaErrorInvalidValue);
    trireme::emulation::gpu().launch_graph(*executable, stream);
  });
}

}  // extern "C"
