// The memory of the emulated GPU. Device memory may be touched only while the GPU works, and
// nothing may be touched beyond its end or after it is freed: the process dies of that, with a
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
  static constexpr size_t kBytes = size_t{16} << 30;  // that the device has

  Memory();
  // Filled with 0xFF. Null when there is not so much.
  void* allocate(size_t bytes, Place place);
  bool release(void* data, Place place);  // false when it is no such allocation
  // Makes pageable memory pinned, and pageable again; false when it is that already.
  bool pin(void* data, size_t bytes);
  bool unpin(void* data);
  // Where `bytes` from here on are; nothing when they are not all in one allocation.
  std::optional<Place> place(const void* data, size_t bytes) const;
  size_t used() const { return used_; }

  // Lets all threads at device memory, or none.
  void open(bool opened);
  // What is wrong with what has been written; empty: nothing.
  std::string damage() const;

 private:
  struct Allocation {
    size_t bytes;
    uintptr_t region;
    size_t region_bytes;
    Place place;
  };

  uintptr_t begin_, end_;  // addresses; none is used twice
  uintptr_t next_;
  size_t page_;
  std::string poison_;  // a page of it
  size_t used_ = 0;
  bool opened_ = false;
  std::map<uintptr_t, Allocation> allocations_;
  std::map<uintptr_t, size_t> pinned_;  // from elsewhere, with their bytes
};

}  // namespace trireme::emulation
