// Counts the memory that a device and the communicators of its ranks have allocated.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "core/device.h"
#include "tests/comm/forwarding_communicator.h"

namespace trireme::test {

struct MemoryCount {
  size_t in_use = 0;  // bytes
  size_t peak = 0;    // the largest value so far
};

// Adds the buffer's size to the count until it is destroyed. `count` must outlive the buffer.
inline Buffer counted(Buffer buffer, MemoryCount& count) {
  const size_t bytes = buffer.bytes();
  count.in_use += bytes;
  count.peak = std::max(count.peak, count.in_use);
  void* const data = buffer.data();
  auto kept = std::make_shared<Buffer>(std::move(buffer));
  return {data, bytes, [kept, bytes, &count](void*) mutable {
            count.in_use -= bytes;
            kept.reset();
          }};
}

class CountedDevice final : public Device {
 public:
  explicit CountedDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  MemoryCount& count() { return count_; }

  DeviceKind kind() const override { return device_->kind(); }
  std::string description() const override { return device_->description(); }
  Buffer allocate(size_t bytes) override { return counted(device_->allocate(bytes), count_); }
  std::unique_ptr<Stream> create_stream(StreamKind kind) override {
    return device_->create_stream(kind);
  }
  std::unique_ptr<Event> create_event(EventKind kind) override {
    return device_->create_event(kind);
  }
  double seconds_between(Event& from, Event& to) override {
    return device_->seconds_between(from, to);
  }
  Buffer allocate_host(size_t bytes) override { return device_->allocate_host(bytes); }
  void copy(void* to, const void* from, size_t bytes, Stream& stream) override {
    device_->copy(to, from, bytes, stream);
  }
  void fill_zero(void* to, size_t bytes, Stream& stream) override {
    device_->fill_zero(to, bytes, stream);
  }
  std::unique_ptr<Recording> record(Stream& stream, const std::function<void()>& encode) override {
    return device_->record(stream, encode);
  }
  std::optional<DeviceLoad> load() override { return device_->load(); }

 private:
  std::unique_ptr<Device> device_;
  MemoryCount count_;
};

// Adds the memory of allocate(), also of communicators split from this one, to a count.
class CountedCommunicator final : public ForwardingCommunicator {
 public:
  CountedCommunicator(std::unique_ptr<comm::Communicator> other, MemoryCount& count)
      : ForwardingCommunicator(std::move(other)), count_(count) {}

  Buffer allocate(size_t bytes) override {
    return counted(ForwardingCommunicator::allocate(bytes), count_);
  }
  std::unique_ptr<comm::Communicator> split(int color, int key) override {
    return std::make_unique<CountedCommunicator>(ForwardingCommunicator::split(color, key), count_);
  }

 private:
  MemoryCount& count_;
};

}  // namespace trireme::test
