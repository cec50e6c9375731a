#include <fmt/format.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <vector>

#include "core/error.h"
#include "data/cache.h"

namespace trireme::data {
namespace {

// An image. Its pixels follow in memory.
struct alignas(64) CachedImage {
  ImageSize size;
  int channels;

  uint8_t* pixels() { return reinterpret_cast<uint8_t*>(this + 1); }
};

// Reserved address space, which takes memory only when it is written. Uses huge pages, since reads
// are at random offsets.
class Reservation {
 public:
  explicit Reservation(int64_t bytes) : bytes_(bytes) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      throw ConfigError("data.cache.memory_bytes",
                        fmt::format("cannot reserve {} bytes: {}", bytes, std::strerror(errno)));
    }
    memory_ = static_cast<std::byte*>(memory);
    madvise(memory, bytes_, MADV_HUGEPAGE);  // best effort
  }
  ~Reservation() { munmap(memory_, bytes_); }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  std::byte* at(int64_t offset) const { return memory_ + offset; }

 private:
  std::byte* memory_ = nullptr;
  size_t bytes_;
};

class MemoryCache final : public ImageCache {
 public:
  MemoryCache(int64_t count, int64_t bytes)
      : bytes_(bytes),
        memory_(bytes),
        entries_(count),
        used_(count * static_cast<int64_t>(sizeof entries_[0])) {}

  std::optional<ImageView> find(int64_t index) const override {
    CachedImage* cached = entries_[index].load(std::memory_order_acquire);
    if (!cached) return {};
    return view_of(cached->pixels(), cached->size, cached->channels);
  }

  void put(int64_t index, const ImageView& image) override {
    std::atomic<CachedImage*>& place = entries_[index];
    if (place.load(std::memory_order_relaxed)) return;
    constexpr auto kUnit = static_cast<int64_t>(alignof(CachedImage));
    const int64_t pixels = image.height * image.row_bytes();
    const int64_t bytes =
        static_cast<int64_t>(sizeof(CachedImage)) + (pixels + kUnit - 1) / kUnit * kUnit;
    int64_t used = used_.load(std::memory_order_relaxed);
    do {
      if (bytes > bytes_ - used) return;
    } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    CachedImage* cached =
        new (memory_.at(used / kUnit * kUnit)) CachedImage{image.size(), image.channels};
    copy_pixels(image, view_of(cached->pixels(), cached->size, cached->channels));
    // If several threads store the same image, the last one wins; the copies are equal.
    place.store(cached, std::memory_order_release);
  }

 private:
  int64_t bytes_;
  Reservation memory_;
  std::vector<std::atomic<CachedImage*>> entries_;
  std::atomic<int64_t> used_;  // bytes, including entries_
};

}  // namespace

std::unique_ptr<ImageCache> make_memory_cache(int64_t count, int64_t bytes) {
  return std::make_unique<MemoryCache>(count, bytes);
}

}  // namespace trireme::data
