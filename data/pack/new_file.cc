#include "data/pack/new_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "core/error.h"

namespace trireme {
namespace {

constexpr size_t kBuffered = 1 << 20;

[[noreturn]] void refuse(const std::string& path) {
  throw Error(fmt::format("{} cannot be written: {}", path, std::strerror(errno)));
}

Descriptor create(const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) refuse(path);
  return Descriptor(file);
}

// Makes the names in it last.
void sync_folder_of(const std::string& path) {
  const auto folder = std::filesystem::absolute(path).parent_path();
  const Descriptor file(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file.is_open() || fsync(file.number()) != 0) refuse(folder.string());
}

}  // namespace

NewFile::NewFile(const std::string& path)
    : path_(path), temporary_(path + ".tmp"), file_(create(temporary_)) {}

NewFile::~NewFile() {
  if (!finished_) unlink(temporary_.c_str());
}

void NewFile::write(std::span<const uint8_t> bytes) {
  bytes_ += bytes.size();
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  if (buffer_.size() >= kBuffered) flush();
}

void NewFile::finish() {
  flush();
  if (fdatasync(file_.number()) != 0) refuse(temporary_);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) refuse(path_);
  finished_ = true;
  sync_folder_of(path_);
}

void NewFile::flush() {
  for (size_t done = 0; done < buffer_.size();) {
    const ssize_t wrote = ::write(file_.number(), buffer_.data() + done, buffer_.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) refuse(temporary_);
    done += static_cast<size_t>(wrote);
  }
  buffer_.clear();
}

}  // namespace trireme
