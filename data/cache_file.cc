#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

#include "core/alignment.h"
#include "core/error.h"
#include "core/interrupted.h"
#include "data/cache.h"
#include "data/files/descriptor.h"

namespace trireme::data {
namespace {

// The file starts with a page that holds this header. A checksum for each image follows (0 if the
// image is missing), and from the next page on the images, each aligned to kPixelAlignment. Numbers
// are in host byte order.
struct CacheHeader {
  std::array<char, 8> magic{'T', 'R', 'I', 'R', 'E', 'M', 'E', 'C'};
  uint32_t version = 1;
  uint32_t ready = 0;  // 0 while the file is being created, or if that was interrupted
  int32_t height = 0;
  int32_t width = 0;
  int32_t channels = 0;
  uint32_t unused = 0;
  int64_t count = 0;
  uint64_t identity = 0;

  bool operator==(const CacheHeader&) const = default;
};
static_assert(sizeof(CacheHeader) == 48);  // no padding

constexpr size_t kPage = 4096;
constexpr size_t kPixelAlignment = 64;

// The layout of the file, in bytes.
struct CachePlan {
  size_t image;   // size of an image
  size_t stride;  // distance between images
  size_t images;  // offset of the first image
  size_t total;
};

CachePlan plan_of(const std::string& path, const CacheContents& contents) {
  CachePlan plan{};
  plan.image = static_cast<size_t>(contents.size.height) * contents.size.width * contents.channels;
  plan.stride = round_up(plan.image, kPixelAlignment);
  const size_t count = contents.count;
  plan.images = round_up(kPage + count * sizeof(uint64_t), kPage);
  if (__builtin_mul_overflow(count, plan.stride, &plan.total) || plan.total > size_t{1} << 60) {
    throw DataError(path, fmt::format("cannot hold {} images of {} bytes", count, plan.image));
  }
  plan.total += plan.images;
  return plan;
}

uint64_t checksum_pixels(const uint8_t* pixels, size_t bytes) {
  const uint64_t hash = XXH3_64bits(pixels, bytes);
  return hash == 0 ? 1 : hash;
}

[[noreturn]] void throw_errno(const std::string& path, const std::string& what, int error) {
  throw DataError(path, fmt::format("{}: {}", what, std::strerror(error)));
}

// An open file, locked until its header has been checked.
struct LockedFile {
  Descriptor file;
  bool writable;
};

LockedFile open_locked(const std::string& path) {
  int file = open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  const int reason = errno;
  const bool writable = file >= 0;
  if (!writable) file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw_errno(path, "cannot be opened", reason);
  LockedFile opened{Descriptor(file), writable};
  if (retry_interrupted([&] { return flock(opened.file.number(), LOCK_EX); }) != 0) {
    throw_errno(path, "cannot be locked", errno);
  }
  return opened;
}

void write_header(int file, const std::string& path, const CacheHeader& header) {
  if (pwrite(file, &header, sizeof header, 0) == ssize_t{sizeof header}) return;
  throw_errno(path, "cannot be written", errno);
}

// Allocates the whole file now: writing to a mapped page without disk space would raise SIGBUS.
void create(int file, const std::string& path, CacheHeader header, const CachePlan& plan) {
  header.ready = 0;
  int error = ftruncate(file, 0) == 0 ? 0 : errno;
  if (error == 0) write_header(file, path, header);
  if (error == 0) {
    do {
      error = posix_fallocate(file, 0, plan.total);
    } while (error == EINTR);
  }
  if (error != 0) {
    if (ftruncate(file, 0) != 0) error = errno;
    throw_errno(path,
                fmt::format("there is no room for the {:.1f} MiB of {} images",
                            static_cast<double>(plan.total) / (1 << 20), header.count),
                error);
  }
  header.ready = 1;
  write_header(file, path, header);
}

// Throws DataError if the file does not match `wanted`.
void check(const std::string& path, const CacheHeader& found, const CacheHeader& wanted,
           size_t size, const CachePlan& plan) {
  constexpr const char* kRemedy = "; remove it, or set data.cache.file to another path";
  if (found.magic != wanted.magic || found.version != wanted.version) {
    throw DataError(path,
                    fmt::format("is not an image cache, or is one of another version{}", kRemedy));
  }
  if (found.count != wanted.count || found.height != wanted.height || found.width != wanted.width ||
      found.channels != wanted.channels) {
    throw DataError(
        path, fmt::format("holds {} images of {} x {} x {}, not {} of {} x {} x {} (height x "
                          "width x channels){}",
                          found.count, found.height, found.width, found.channels, wanted.count,
                          wanted.height, wanted.width, wanted.channels, kRemedy));
  }
  if (found.identity != wanted.identity) {
    throw DataError(path, fmt::format("was created from other files, or with other transforms or "
                                      "other data.decode settings{}",
                                      kRemedy));
  }
  if (size != plan.total) {
    throw DataError(
        path, fmt::format("is {} bytes long, not {}: it is damaged{}", size, plan.total, kRemedy));
  }
}

class Mapping {
 public:
  Mapping(const std::string& path, int file, size_t bytes, bool writable) : bytes_(bytes) {
    void* memory =
        mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) throw_errno(path, "cannot be mapped", errno);
    memory_ = static_cast<uint8_t*>(memory);
  }
  ~Mapping() { munmap(memory_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  uint8_t* at(size_t offset) const { return memory_ + offset; }

 private:
  uint8_t* memory_ = nullptr;
  size_t bytes_;
};

class CacheFile final : public ImageCache {
 public:
  CacheFile(const std::string& path, const LockedFile& opened, const CacheContents& contents,
            const CachePlan& plan)
      : contents_(contents),
        plan_(plan),
        writable_(opened.writable),
        memory_(path, opened.file.number(), plan.total, opened.writable),
        states_(contents.count) {
    if (!writable_) require_all(path);
  }

  std::optional<ImageView> find(int64_t index) const override {
    std::atomic<State>& state = states_[index];
    State seen = state.load(std::memory_order_acquire);
    if (seen == State::kGood) return view(index);
    const uint64_t checksum = this->checksum(index).load(std::memory_order_acquire);
    if (checksum == 0 || seen != State::kUnknown ||
        !state.compare_exchange_strong(seen, State::kBusy, std::memory_order_acquire)) {
      return {};
    }
    const bool good = checksum_pixels(pixels(index), plan_.image) == checksum;
    state.store(good ? State::kGood : State::kUnknown, std::memory_order_release);
    if (!good) return {};
    return view(index);
  }

  void put(int64_t index, const ImageView& image) override {
    State unknown = State::kUnknown;
    if (!writable_ ||
        !states_[index].compare_exchange_strong(unknown, State::kBusy, std::memory_order_acquire)) {
      return;
    }
    // A process that is killed here leaves a missing image, never a wrong one.
    checksum(index).store(0, std::memory_order_release);
    copy_pixels(image, view(index));
    checksum(index).store(checksum_pixels(pixels(index), plan_.image), std::memory_order_release);
    states_[index].store(State::kGood, std::memory_order_release);
  }

 private:
  enum class State : uint8_t { kUnknown, kBusy, kGood };  // kBusy: a thread verifies or writes it

  std::atomic_ref<uint64_t> checksum(int64_t index) const {
    return std::atomic_ref(reinterpret_cast<uint64_t*>(memory_.at(kPage))[index]);
  }
  uint8_t* pixels(int64_t index) const { return memory_.at(plan_.images + index * plan_.stride); }
  ImageView view(int64_t index) const {
    return view_of(pixels(index), contents_.size, contents_.channels);
  }
  void require_all(const std::string& path) const {
    int64_t missing = 0;
    for (int64_t i = 0; i < contents_.count; ++i) {
      if (checksum(i).load(std::memory_order_relaxed) == 0) ++missing;
    }
    if (missing == 0) return;
    throw DataError(path, fmt::format("is read-only, and {} of its {} images are missing", missing,
                                      contents_.count));
  }

  CacheContents contents_;
  CachePlan plan_;
  bool writable_;
  Mapping memory_;
  mutable std::vector<std::atomic<State>> states_;
};

}  // namespace

std::unique_ptr<ImageCache> open_cache_file(const std::string& path,
                                            const CacheContents& contents) {
  CacheHeader wanted;
  wanted.ready = 1;
  wanted.height = contents.size.height;
  wanted.width = contents.size.width;
  wanted.channels = contents.channels;
  wanted.count = contents.count;
  wanted.identity = contents.identity;
  const CachePlan plan = plan_of(path, contents);
  const LockedFile opened = open_locked(path);
  const size_t size = status_of(opened.file.number(), path).st_size;
  CacheHeader found{.magic = {}};
  const ssize_t read = pread(opened.file.number(), &found, sizeof found, 0);
  if (read < 0) throw_errno(path, "cannot be read", errno);
  const bool interrupted =
      read == ssize_t{sizeof found} && found.magic == wanted.magic && found.ready == 0;
  if (opened.writable && (size == 0 || interrupted)) {
    create(opened.file.number(), path, wanted, plan);
  } else {
    check(path, found, wanted, size, plan);
  }
  flock(opened.file.number(), LOCK_UN);  // closing a mapped file does not unlock it
  return std::make_unique<CacheFile>(path, opened, contents, plan);
}

}  // namespace trireme::data
