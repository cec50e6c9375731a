#include "data/files/file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>

#include "core/error.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

std::vector<uint8_t> read_raw(const std::string& path) {
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  if (!file) throw DataError(path, fmt::format("cannot be opened: {}", std::strerror(errno)));
  std::error_code unknown;  // on failure, the buffer grows as needed
  const uintmax_t size = fs::file_size(path, unknown);
  std::vector<uint8_t> bytes;
  if (!unknown) bytes.reserve(size + 1);
  for (size_t read = 0;;) {
    bytes.resize(std::max(bytes.capacity(), read + 65536));
    read += std::fread(bytes.data() + read, 1, bytes.size() - read, file.get());
    if (std::ferror(file.get())) {
      throw DataError(path,
                      fmt::format("reading failed after {} bytes: {}", read, std::strerror(errno)));
    }
    if (std::feof(file.get())) {
      bytes.resize(read);
      return bytes;
    }
  }
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

  // Decompresses up to the end of the stream or its first damage. Returns a description of the
  // damage, or "" if there is none.
  std::string run() {
    while (true) {
      refill();
      const int status = inflate(&stream_, Z_NO_FLUSH);
      const size_t used = in_.size() - left_ - stream_.avail_in;
      if (status == Z_STREAM_END) {
        if (used == in_.size()) return {};
        if (!next_member(used)) {
          return fmt::format("has {} bytes after its gzip stream, which ends at byte {}",
                             in_.size() - used, used);
        }
      } else if (status == Z_BUF_ERROR) {  // there is output space, so the input has ended
        return fmt::format(
            "gzip stream ends early, after {} bytes: the file is truncated; download it "
            "again",
            used);
      } else if (status != Z_OK) {
        return fmt::format("gzip data is damaged at byte {}: {}; download the file again", used,
                           stream_.msg ? stream_.msg : zError(status));
      }
    }
  }
  std::vector<uint8_t> take() {
    out_.resize(out_.size() - room_ - stream_.avail_out);
    return std::move(out_);
  }

 private:
  static constexpr size_t kPiece = std::numeric_limits<uInt>::max() / 2;  // zlib has 32-bit sizes

  // Provides zlib with more input and output space if it has none left.
  void refill() {
    if (stream_.avail_in == 0) {
      const size_t piece = std::min(kPiece, left_);
      stream_.next_in = const_cast<Bytef*>(in_.data() + (in_.size() - left_));
      stream_.avail_in = static_cast<uInt>(piece);
      left_ -= piece;
    }
    if (stream_.avail_out == 0) {
      const size_t done = out_.size() - room_;
      if (room_ == 0) {
        room_ = out_.empty() ? std::max<size_t>(4096, in_.size() * 4) : out_.size();
        out_.resize(out_.size() + room_);
      }
      const size_t piece = std::min(kPiece, room_);
      stream_.next_out = out_.data() + done;
      stream_.avail_out = static_cast<uInt>(piece);
      room_ -= piece;
    }
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
  size_t room_ = 0;           // bytes of the output that zlib has not been given yet
};

}  // namespace

void check_root(const std::string& root, const std::string& hint) {
  std::error_code ignored;  // inaccessible files count as missing
  const fs::path folder(root);
  if (root.empty() || fs::is_directory(folder, ignored)) return;
  const std::string from =
      folder.is_relative() ? " in " + fs::current_path(ignored).string() : std::string();
  throw DataError("data.root", fmt::format("'{}' is not a folder{}{}", root, from, hint));
}

std::string find_file(const std::string& root, std::span<const std::string> names,
                      const std::string& hint) {
  check_root(root, hint);
  const fs::path folder(root);
  std::error_code ignored;  // inaccessible files count as missing
  std::vector<std::string> tried;
  for (const std::string& name : names) {
    for (const char* ending : {"", ".gz"}) {
      const fs::path path = folder / (name + ending);
      if (fs::exists(path, ignored) && !fs::is_directory(path, ignored)) return path.string();
      tried.push_back(name + ending);
    }
  }
  throw DataError(root.empty() ? fs::current_path(ignored).string() : root,
                  fmt::format("has no file {}{}", fmt::join(tried, " or "), hint));
}

File read_file(const std::string& path, OnDamage on_damage) {
  File file{path, read_raw(path), {}};
  if (file.bytes.size() >= 2 && file.bytes[0] == 0x1f && file.bytes[1] == 0x8b) {
    Gunzip gunzip(file.bytes);
    file.damage = gunzip.run();
    if (!file.damage.empty() && on_damage == OnDamage::kThrow) {
      throw DataError(path, file.damage);
    }
    file.bytes = gunzip.take();
  }
  return file;
}

std::vector<std::string> read_lines(const std::string& path) {
  std::vector<std::string> lines;
  std::string line;
  for (const uint8_t byte : read_file(path).bytes) {
    if (byte == '\n') lines.push_back(std::exchange(line, {}));
    if (byte != '\n' && byte != '\r') line += static_cast<char>(byte);
  }
  if (!line.empty()) lines.push_back(line);
  return lines;
}

}  // namespace trireme::data
