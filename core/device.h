// Where memory lives and work is queued. The same code drives every device: on the CPU a stream
// runs its work inline or on one background thread, on a GPU it is a hardware queue.
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

// Memory that is given back when this goes. Aligned to at least 64 bytes; not initialized.
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

// A piece of host work for a stream, kept in place: queueing it allocates nothing.
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

// A point in a stream's work that others can wait for. Reusable: recording again moves the point.
class Event {
 public:
  virtual ~Event() = default;
  // Blocks the caller until the latest record is reached.
  virtual void synchronize() = 0;
};

enum class EventKind {
  kOrder,  // for other streams and the host to wait for
  kTimed,  // marks a time; within a Recording the host waits for the stream, not for the event
};

// Work in order. Work that failed is reported, as the exception it threw, by the next wait or
// synchronize that depends on it.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual DeviceKind device() const = 0;
  // The event is reached when everything queued so far is done.
  virtual void record(Event& event) = 0;
  // What is queued from now on starts after the event's latest record. Blocks the caller only where
  // this stream runs inline.
  virtual void wait(Event& event) = 0;
  // Queues work for the host. It must not queue on a stream itself.
  virtual void run(Task task) = 0;
  // Blocks until everything queued is done.
  virtual void synchronize() = 0;
};

enum class StreamKind {
  kCompute,     // CPU: runs inline, in the caller
  kBackground,  // CPU: a thread of its own; a GPU runs it first
  kCopy,        // CPU: runs inline; beside computation on a GPU
};

// Work that was recorded instead of run and can be queued again as a whole at almost no cost.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay(Stream& stream) = 0;
};

// How busy a device is, where its driver tells.
struct DeviceLoad {
  double utilization_percent = 0;
  double memory_used_bytes = 0;
  double memory_total_bytes = 0;
  double power_watts = 0;
  double clock_mhz = 0;  // of the multiprocessors
  double temperature_celsius = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string description() const = 0;  // for people: model, cores, memory
  virtual Buffer allocate(size_t bytes) = 0;
  virtual std::unique_ptr<Stream> create_stream(StreamKind kind) = 0;
  virtual std::unique_ptr<Event> create_event(EventKind kind = EventKind::kOrder) = 0;
  // Between two timed events that have both been reached.
  virtual double seconds_between(Event& from, Event& to) = 0;
  // Host memory that copies to and from this device need not stage.
  virtual Buffer allocate_host(size_t bytes) = 0;
  // In any direction between host and device. With host memory that allocate_host did not make, the
  // caller may be blocked until it is done, and it cannot be recorded.
  virtual void copy(void* to, const void* from, size_t bytes, Stream& stream) = 0;
  virtual void fill_zero(void* to, size_t bytes, Stream& stream) = 0;
  // Records what `encode` queues on the stream, and on streams that wait for it and that it waits
  // for in the end; nothing runs. Null where a device has nothing to gain from that (the CPU).
  // Whatever was queued must outlive the recording, and should have run once before. `encode` must
  // not allocate or synchronize; events of kOrder lead neither into the recording nor out of it.
  virtual std::unique_ptr<Recording> record(Stream& stream,
                                            const std::function<void()>& encode) = 0;
  virtual std::optional<DeviceLoad> load() { return std::nullopt; }
};

// The CPU, computing with this many threads.
std::unique_ptr<Device> create_cpu_device(int threads);

// What CUDA offers this process. Asking opens no device.
struct CudaSupport {
  bool built = false;  // into this program
  int devices = 0;     // that it may use
  // An identity of each ("0000:3b:00.0"), the same in every process of the host.
  std::vector<std::string> ids = {};
  std::string problem = {};   // why there is none, for people
  std::string versions = {};  // "runtime 13.0, driver 13.0", as far as known
};
CudaSupport query_cuda();

// A library that the program loads when it needs it: cuDNN, cuBLASLt, NCCL, NVML.
struct LibraryStatus {
  std::string name;
  std::string version = {};  // of NVML that of the driver
  std::string path = {};
  std::string problem = {};  // why it cannot be used, for people; empty when it can
};
// Tries them all; none where the program is built without CUDA.
std::vector<LibraryStatus> cuda_libraries();

// The index-th of the devices that this process may use (CUDA_VISIBLE_DEVICES). Opens no other.
// Throws DeviceError when there is none.
std::unique_ptr<Device> create_cuda_device(int index);

}  // namespace trireme
