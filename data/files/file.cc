#include "data/files/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "core/error.h"
#include "core/installation.h"
#include "core/memory_limit.h"
#include "core/text.h"
#include "data/files/lines.h"

namespace trireme::data {

namespace {

namespace fs = std::filesystem;

std::vector<uint8_t> read_raw(const std::string& path) {
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  // Files that are not on a disk may never end, even if they are called regular (/proc).
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status {};
  const std::unique_ptr<std::FILE, Close> file(descriptor < 0 ? nullptr
                                                              : ::fdopen(descriptor, "rb"));
  if (!file || ::fstat(descriptor, &status) != 0) {
    throw DataError(path, fmt::format("cannot be opened: {}", std::strerror(errno)));
  }
  if (!S_ISREG(status.st_mode)) throw DataError(path, "is not a regular file");
  const auto size = static_cast<uint64_t>(status.st_size);
  require_fits_memory(path, size);
  std::vector<uint8_t> bytes;
  try {
    bytes.resize(size + 1);
  } catch (const std::bad_alloc&) {
    fail_out_of_memory(path, size);
  }
  bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file.get()));
  if (std::ferror(file.get())) {
    throw DataError(
        path, fmt::format("reading failed after {} bytes: {}", bytes.size(), std::strerror(errno)));
  }
  if (bytes.size() > size) {
    throw DataError(path, fmt::format("has more than its size, {} bytes: it is being written, or "
                                      "is not a file on a disk",
                                      size));
  }
  return bytes;
}

// Decompresses gzip data, which may consist of several concatenated members.
class Gunzip {
 public:
  explicit Gunzip(std::span<const uint8_t> in) : in_(in) {
    if (inflateInit2(&stream_, 15 + 16) != Z_OK)
      throw Error("zlib initialization failed: out of memory");
  }
  ~Gunzip() { inflateEnd(&stream_); }
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  // Decompresses until there are `limit` bytes, or up to the end of the stream or its first damage.
  // Returns a description of the damage, or "" if there is none. May be called again with a higher
  // limit if there was none.
  std::string run(uint64_t limit) {
    while (!ended_ && out_.size() < limit) {
      grow(limit);
      while (stream_.avail_out > 0 && !ended_) {
        if (std::string damage = inflate_piece(); !damage.empty()) return damage;
      }
      out_.resize(out_.size() - stream_.avail_out);
      stream_.avail_out = 0;
    }
    return {};
  }
  const std::vector<uint8_t>& out() const { return out_; }
  std::vector<uint8_t> take() { return std::move(out_); }

 private:
  static constexpr size_t kPiece = std::numeric_limits<uInt>::max() / 2;  // zlib has 32-bit sizes

  // Doubles the output, but not beyond the limit.
  void grow(uint64_t limit) {
    const size_t done = out_.size();
    const size_t more = std::max({size_t{4096}, in_.size() * 3, done});
    const size_t piece = std::min({more, kPiece, static_cast<size_t>(limit - done)});
    out_.resize(done + piece);
    stream_.next_out = out_.data() + done;
    stream_.avail_out = static_cast<uInt>(piece);
  }

  std::string inflate_piece() {
    if (stream_.avail_in == 0) {
      const size_t piece = std::min(kPiece, left_);
      stream_.next_in = const_cast<Bytef*>(in_.data() + (in_.size() - left_));
      stream_.avail_in = static_cast<uInt>(piece);
      left_ -= piece;
    }
    const int status = inflate(&stream_, Z_NO_FLUSH);
    const size_t used = in_.size() - left_ - stream_.avail_in;
    if (status == Z_OK) return {};
    std::string damage;
    if (status == Z_STREAM_END) {
      ended_ = used == in_.size();
      if (ended_ || next_member(used)) return {};
      damage = fmt::format("has {} bytes after its gzip stream, which ends at byte {}",
                           in_.size() - used, used);
    } else if (status == Z_BUF_ERROR) {  // there is output space, so the input has ended
      damage = fmt::format(
          "gzip stream ends early, after {} bytes: the file is truncated; download it again", used);
    } else {
      damage = fmt::format("gzip data is damaged at byte {}: {}; download the file again", used,
                           stream_.msg ? stream_.msg : zError(status));
    }
    out_.resize(out_.size() - stream_.avail_out);
    stream_.avail_out = 0;
    return damage;
  }

  bool next_member(size_t at) {
    if (in_.size() - at < 2 || in_[at] != 0x1f || in_[at + 1] != 0x8b) return false;
    inflateReset(&stream_);
    return true;
  }

  std::span<const uint8_t> in_;
  std::vector<uint8_t> out_;
  z_stream stream_{};
  size_t left_ = in_.size();  // bytes of the input that zlib has not been given yet
  bool ended_ = false;
};

// Decompresses the bytes of a file.
File unzipped(const std::string& path, const std::vector<uint8_t>& bytes,
              const SizeFromHead& size_of) {
  Gunzip gunzip(bytes);
  File file{path, {}, gunzip.run(kHeadBytes)};
  // Without a size, what becomes far larger is refused. The rest is read into other memory next.
  constexpr uint64_t kMaxCompression = 200, kAlwaysAllowed = 16 << 20;
  const uint64_t plausible = std::max(bytes.size() * kMaxCompression, kAlwaysAllowed);
  uint64_t size = std::min(static_cast<uint64_t>(process_memory_limit()) / 4, plausible);
  if (size_of && file.damage.empty()) size = size_of(gunzip.out());
  require_fits_memory(path, size, " according to its header");
  if (file.damage.empty()) file.damage = gunzip.run(size + 1);
  file.bytes = gunzip.take();
  if (!size_of && file.bytes.size() > size) {
    throw DataError(
        path, size == plausible
                  ? fmt::format("is more than {} times larger when it is decompressed; if "
                                "that is right, decompress it (gunzip)",
                                kMaxCompression)
                  : fmt::format("becomes larger than {}, a quarter of the available memory, when "
                                "it is decompressed",
                                format_bytes(static_cast<double>(size))));
  }
  return file;
}

// Throws DataError if the folder that contains the file may not be searched.
fs::file_status readable_status(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error == std::errc::permission_denied) {
    throw DataError(path.string(), "cannot be read: " + error.message());
  }
  return status;
}

// Returns "; launch/get-data NAME downloads it" if the folder has the name of such a data set.
std::string download_hint(const fs::path& folder) {
  for (const char* name : {"mnist", "fashion-mnist", "cifar10", "shakespeare", "speakers"}) {
    if (folder.filename() == name) {
      return fmt::format("; {} {} downloads it", script_command("get-data"), name);
    }
  }
  return "";
}

}  // namespace

void check_root(const std::string& root, const std::string& hint) {
  const fs::path folder(root);
  if (root.empty() || fs::is_directory(readable_status(folder))) return;
  std::error_code ignored;
  const std::string from =
      folder.is_relative() ? " in " + fs::current_path(ignored).string() : std::string();
  throw DataError("data.root", fmt::format("'{}' is not a folder{}{}", root, from,
                                           hint.empty() ? download_hint(folder) : hint));
}

std::string find_file(const std::string& root, std::span<const std::string> names,
                      const std::string& hint) {
  check_root(root, hint);
  const fs::path folder(root);
  std::vector<std::string> tried;
  for (const std::string& name : names) {
    for (const char* ending : {"", ".gz"}) {
      const fs::path path = folder / (name + ending);
      const fs::file_status status = readable_status(path);
      if (fs::exists(status) && !fs::is_directory(status)) return path.string();
      tried.push_back(name + ending);
    }
  }
  std::error_code ignored;
  throw DataError(root.empty() ? fs::current_path(ignored).string() : root,
                  fmt::format("has no file {}{}", fmt::join(tried, " or "), hint));
}

File read_file(const std::string& path, OnDamage on_damage, const SizeFromHead& size_of) {
  File file{path, read_raw(path), {}};
  if (file.bytes.size() >= 2 && file.bytes[0] == 0x1f && file.bytes[1] == 0x8b) {
    file = unzipped(path, file.bytes, size_of);
    if (!file.damage.empty() && on_damage == OnDamage::kThrow) {
      throw DataError(path, file.damage);
    }
  }
  return file;
}

std::vector<std::string> read_lines(const std::string& path) {
  const File file = read_file(path);
  const std::string_view text = without_byte_order_mark(
      {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()});
  std::vector<std::string> lines;
  for_each_line(text, [&](std::string_view line, int64_t) { lines.emplace_back(line); });
  return lines;
}

}  // namespace trireme::data
