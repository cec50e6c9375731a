// Devices, their memory, and the streams that work is queued on. The same code drives every device:
// on the CPU a stream runs its work inline or on one background thread, on a GPU it is a hardware
// queue.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"

namespace trireme {

enum class DeviceKind { kCpu, kCuda };

// Owns a block of memory and releases it on destruction. The memory is aligned to at least 64 bytes
// and not initialized.
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, size_t bytes, std::function<void(void*)> release)
      : data_(data), bytes_(bytes), release_(std::move(release)) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~Buffer() {
    if (release_) release_(data_);
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  std::function<void(void*)> release_;
};

// Host work for a stream. The callable is stored inline, so queueing a task allocates nothing.
class Task {
 public:
  static constexpr size_t kCapacity = 64;

  Task() = default;
  template <class F>
  explicit Task(F work) {
    static_assert(sizeof(F) <= kCapacity && std::is_trivially_copyable_v<F>,
                  "capture plain values and pointers only");
    new (storage_) F(work);
    call_ = [](std::byte* storage) { (*std::launder(reinterpret_cast<F*>(storage)))(); };
  }
  void operator()() { call_(storage_); }

 private:
  alignas(std::max_align_t) std::byte storage_[kCapacity];
  void (*call_)(std::byte*) = nullptr;
};

// A point in the work of a stream that the host and other streams can wait for. Recording the event
// again moves it. An event that was never recorded counts as reached.
class Event {
 public:
  virtual ~Event() = default;
  // Blocks until the most recently recorded point is reached. Throws the exception of failed work
  // before that point.
  virtual void synchronize() = 0;
};

enum class EventKind {
  kOrder,  // other streams and the host can wait for it
  kTimed,  // measures time; after a replay of a Recording, synchronize the stream, not the event
};

// A queue whose work runs in order. If work fails, every later wait or synchronize that depends on
// it rethrows its exception.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual DeviceKind device() const = 0;
  // Records the event, which is reached when everything queued so far is done.
  virtual void record(Event& event) = 0;
  // Makes work queued from now on start only after the most recently recorded point of the event.
  // Blocks the caller only if this stream runs inline.
  virtual void wait(Event& event) = 0;
  // Queues a task that runs on the host. The task must not queue work on a stream.
  virtual void run(Task task) = 0;
  // Blocks until everything queued is done. Throws the exception of failed work.
  virtual void synchronize() = 0;
};

enum class StreamKind {
  kCompute,     // CPU: runs inline, in the caller
  kBackground,  // CPU: runs in a thread of its own; GPU: has priority over other streams
  kCopy,        // CPU: runs inline; GPU: runs concurrently with computation
};

// Work that was recorded instead of executed (a CUDA graph). Replaying it queues all of it at
// almost no cost.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay(Stream& stream) = 0;
};

// Utilization of a device, as reported by its driver. Values that the driver does not report are 0.
struct DeviceLoad {
  double utilization_percent = 0;
  double memory_used_bytes = 0;
  double memory_total_bytes = 0;
  double power_watts = 0;
  double clock_mhz = 0;  // clock rate of the multiprocessors
  double temperature_celsius = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string description() const = 0;  // human-readable: model, cores, memory
  // Returns device memory, aligned to kDeviceAlignment. Throws DeviceError if there is not enough.
  virtual Buffer allocate(size_t bytes) = 0;
  virtual std::unique_ptr<Stream> create_stream(StreamKind kind) = 0;
  virtual std::unique_ptr<Event> create_event(EventKind kind = EventKind::kOrder) = 0;
  // Returns the seconds between two events of kind kTimed. Requires that both have been reached.
  virtual double seconds_between(Event& from, Event& to) = 0;
  // Returns host memory that the device can access directly (pinned), so that copies need no
  // staging.
  virtual Buffer allocate_host(size_t bytes) = 0;
  // Queues a copy in any direction between host and device. If host memory is involved that did not
  // come from allocate_host, the call may block until the copy is done and must not be made while
  // recording.
  virtual void copy(void* to, const void* from, size_t bytes, Stream& stream) = 0;
  virtual void fill_zero(void* to, size_t bytes, Stream& stream) = 0;
  // Records the work that `encode` queues on the stream, without running it. Work on other streams
  // is recorded too if those streams wait for an event of this stream first, and this stream waits
  // for them before recording ends. Returns null if recording has no advantage on this device
  // (CPU).
  //
  // Everything that the recorded work uses must outlive the recording. The same work should have
  // run once before. `encode` must not allocate or synchronize. An event of kind kOrder must not be
  // recorded inside the recording and waited for outside of it, or the reverse.
  virtual std::unique_ptr<Recording> record(Stream& stream,
                                            const std::function<void()>& encode) = 0;
  virtual std::optional<DeviceLoad> load() { return std::nullopt; }
};

// Returns the CPU as a device that computes with `threads` threads, of which the calling thread is
// one. On x86, they take numbers smaller than the smallest normal one (1.2e-38 in FP32) for 0.
std::unique_ptr<Device> create_cpu_device(int threads);

// The CUDA support of this program and machine.
struct CudaSupport {
  bool built = false;  // whether this program was built with CUDA
  int devices = 0;     // number of devices visible to this process
  // PCI bus ID of each device ("0000:3b:00.0"), the same in every process of the host.
  std::vector<std::string> ids = {};
  std::string problem = {};   // why there are no devices; empty if there are
  std::string versions = {};  // "runtime 13.0, driver 13.0", or the part that is known
};
// Returns the CUDA support without initializing any device.
CudaSupport query_cuda();

// A library that is loaded at run time: cuDNN, cuBLASLt, NCCL or NVML.
struct LibraryStatus {
  std::string name;
  std::string version = {};  // for NVML, the version of the driver
  std::string path = {};
  std::string problem = {};  // why it cannot be used; empty if it can
};
// Tries to load each library and returns the results. Returns an empty vector if the program was
// built without CUDA.
std::vector<LibraryStatus> cuda_libraries();

// Returns the device with this index among those visible to the process (CUDA_VISIBLE_DEVICES) and
// initializes no other device. Throws DeviceError if there is no such device.
std::unique_ptr<Device> create_cuda_device(int index);

}  // namespace trireme
