// The memory of the emulated GPU. Device memory can only be accessed while the GPU runs work, and
// no memory beyond its end or after it was freed: invalid accesses terminate the process with a
// message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace trireme::emulation {

enum class Place { kDevice, kPinned, kPageable };

class Memory {
 public:
  static constexpr size_t kBytes = size_t{16} << 30;  // memory of the device

  Memory();
  // Returns memory filled with 0xFF, or null if there is not enough.
  void* allocate(size_t bytes, Place place);
  bool release(void* data, Place place);  // returns false if there is no such allocation
  // Pins pageable memory, and unpins it. Return false if the memory already is in that state.
  bool pin(void* data, size_t bytes);
  bool unpin(void* data);
  // Returns the kind of the memory [data, data + bytes), or nullopt if it is not within one
  // allocation.
  std::optional<Place> place(const void* data, size_t bytes) const;
  size_t used() const { return used_; }

  // Allows or forbids all threads to access device memory.
  void open(bool opened);
  // Returns a description of invalid writes, or an empty string if there are none.
  std::string damage() const;

 private:
  struct Allocation {
    size_t bytes;
    uintptr_t region;
    size_t region_bytes;
    Place place;
  };

  uintptr_t begin_, end_;  // range of addresses; no address is reused
  uintptr_t next_;
  size_t page_;
  std::string poison_;  // a page of poison
  size_t used_ = 0;
  bool opened_ = false;
  std::map<uintptr_t, Allocation> allocations_;
  std::map<uintptr_t, size_t> pinned_;  // pinned memory of the host: address, bytes
};

}  // namespace trireme::emulation
