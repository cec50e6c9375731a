// Where memory lives and work is queued. The same code drives every device: on the CPU a stream
// runs its work inline or on one background thread, on a GPU it is a hardware queue.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "core/error.h"

namespace trireme {

enum class DeviceKind { kCpu, kCuda };

// Memory that is given back when this goes. Aligned to at least 64 bytes; not initialised.
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
  kBackground,  // CPU: a thread of its own
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string description() const = 0;  // for people: model, cores, memory
  virtual Buffer allocate(size_t bytes) = 0;
  virtual std::unique_ptr<Stream> create_stream(StreamKind kind) = 0;
  virtual std::unique_ptr<Event> create_event() = 0;
  // In any direction between host and device.
  virtual void copy(void* to, const void* from, size_t bytes, Stream& stream) = 0;
  virtual void fill_zero(void* to, size_t bytes, Stream& stream) = 0;
};

// The CPU, computing with this many threads.
std::unique_ptr<Device> create_cpu_device(int threads);

}  // namespace trireme
