#include "memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace trireme::emulation {
namespace {

constexpr size_t kAddresses = size_t{1} << 38;
constexpr size_t kAlignment = 256;  // as cudaMalloc
constexpr int kPoison = 0xFF;

uintptr_t address(const void* data) { return reinterpret_cast<uintptr_t>(data); }
void* pointer(uintptr_t address) { return reinterpret_cast<void*>(address); }
size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

Memory::Memory()
    : page_(static_cast<size_t>(getpagesize())), poison_(page_, static_cast<char>(kPoison)) {
  void* all =
      mmap(nullptr, kAddresses, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) throw std::runtime_error("cannot reserve addresses for the emulated GPU");
  begin_ = next_ = address(all);
  end_ = begin_ + kAddresses;
}

// Places the allocation at the end of its pages, so that the inaccessible page after it is close.
void* Memory::allocate(size_t bytes, Place place) {
  const size_t region_bytes = round_up(std::max<size_t>(bytes, 1), page_);
  if (bytes > kBytes || next_ + region_bytes + page_ > end_) return nullptr;
  if (place == Place::kDevice && used_ + bytes > kBytes) return nullptr;
  const uintptr_t region = next_;
  if (mprotect(pointer(region), region_bytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
  next_ += region_bytes + page_;
  std::memset(pointer(region), kPoison, region_bytes);
  if (place == Place::kDevice) {
    used_ += bytes;
    if (!opened_) mprotect(pointer(region), region_bytes, PROT_NONE);
  }
  const uintptr_t data = region + region_bytes - round_up(std::max<size_t>(bytes, 1), kAlignment);
  allocations_.emplace(data, Allocation{bytes, region, region_bytes, place});
  return pointer(data);
}

bool Memory::release(void* data, Place place) {
  const auto found = allocations_.find(address(data));
  if (found == allocations_.end() || found->second.place != place) return false;
  const Allocation& freed = found->second;
  if (place == Place::kDevice) used_ -= freed.bytes;
  mmap(pointer(freed.region), freed.region_bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  allocations_.erase(found);
  return true;
}

bool Memory::pin(void* data, size_t bytes) {
  const auto next = pinned_.lower_bound(address(data));
  if (next != pinned_.end() && address(data) + bytes > next->first) return false;
  if (next != pinned_.begin() && std::prev(next)->first + std::prev(next)->second > address(data)) {
    return false;
  }
  return place(data, bytes) == Place::kPageable && pinned_.emplace(address(data), bytes).second;
}

bool Memory::unpin(void* data) { return pinned_.erase(address(data)) > 0; }

std::optional<Place> Memory::place(const void* data, size_t bytes) const {
  if (address(data) < begin_ || address(data) >= end_) {
    const auto next = pinned_.upper_bound(address(data));
    if (next == pinned_.begin()) return Place::kPageable;
    const auto& [begin, pinned_bytes] = *std::prev(next);
    if (address(data) >= begin + pinned_bytes) return Place::kPageable;
    if (address(data) + bytes > begin + pinned_bytes) return std::nullopt;
    return Place::kPinned;
  }
  auto found = allocations_.upper_bound(address(data));
  if (found == allocations_.begin()) return std::nullopt;
  --found;
  if (address(data) + bytes > found->first + found->second.bytes) return std::nullopt;
  return found->second.place;
}

void Memory::open(bool opened) {
  if (std::exchange(opened_, opened) == opened) return;
  const int access = opened ? PROT_READ | PROT_WRITE : PROT_NONE;
  for (const auto& [data, allocation] : allocations_) {
    if (allocation.place == Place::kDevice) {
      mprotect(pointer(allocation.region), allocation.region_bytes, access);
    }
  }
}

std::string Memory::damage() const {
  for (const auto& [data, allocation] : allocations_) {
    const auto intact = [&](uintptr_t from, uintptr_t to) {
      return std::memcmp(pointer(from), poison_.data(), to - from) == 0;
    };
    if (!intact(data + allocation.bytes, allocation.region + allocation.region_bytes)) {
      return fmt::format("a write beyond the end of an allocation of {} bytes", allocation.bytes);
    }
    if (!intact(allocation.region, data)) {
      return fmt::format("a write before the start of an allocation of {} bytes", allocation.bytes);
    }
  }
  return {};
}

}  // namespace trireme::emulation
