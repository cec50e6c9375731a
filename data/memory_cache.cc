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

// A image, whose pixels follow in memory.
struct alignas(64) Kept {
  ImageSize size;
  int channels;

  uint8_t* pixels() { return reinterpret_cast<uint8_t*>(this + 1); }
};

// Address space that becomes memory where it is first written; in large pages, as what is read of
// it lies in random places.
class Reservation {
 public:
  explicit Reservation(int64_t bytes) : bytes_(bytes) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      throw ConfigError("data.cache.memory_bytes",
                        fmt::format("{} cannot be had: {}", bytes, std::strerror(errno)));
    }
    memory_ = static_cast<std::byte*>(memory);
    madvise(memory, bytes_, MADV_HUGEPAGE);  // where there are any
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
        kept_(count),
        used_(count * static_cast<int64_t>(sizeof kept_[0])) {}

  std::optional<ImageView> find(int64_t index) const override {
    Kept* kept = kept_[index].load(std::memory_order_acquire);
    if (!kept) return {};
    return view_of(kept->pixels(), kept->size, kept->channels);
  }

  void keep(int64_t index, const ImageView& image) override {
    std::atomic<Kept*>& place = kept_[index];
    if (place.load(std::memory_order_relaxed)) return;
    constexpr auto kUnit = static_cast<int64_t>(alignof(Kept));
    const int64_t pixels = image.height * image.row_bytes();
    const int64_t bytes = static_cast<int64_t>(sizeof(Kept)) + (pixels + kUnit - 1) / kUnit * kUnit;
    int64_t used = used_.load(std::memory_order_relaxed);
    do {
      if (bytes > bytes_ - used) return;
    } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    Kept* kept = new (memory_.at(used / kUnit * kUnit)) Kept{image.size(), image.channels};
    copy_pixels(image, view_of(kept->pixels(), kept->size, kept->channels));
    // Of threads that keep the same one, the last wins; they are alike.
    place.store(kept, std::memory_order_release);
  }

 private:
  int64_t bytes_;
  Reservation memory_;
  std::vector<std::atomic<Kept*>> kept_;
  std::atomic<int64_t> used_;  // bytes, those of kept_ first
};

}  // namespace

std::unique_ptr<ImageCache> make_memory_cache(int64_t count, int64_t bytes) {
  return std::make_unique<MemoryCache>(count, bytes);
}

}  // namespace trireme::data
