#include "data/pack/tar_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "core/error.h"

namespace trireme::data {
namespace {

constexpr size_t kTarBlock = 512;
constexpr size_t kBuffered = 1 << 20;

using TarBlock = std::array<uint8_t, kTarBlock>;
constexpr TarBlock kZeros{};

void set(TarBlock& block, size_t at, std::string_view text) {
  std::ranges::copy(text, block.begin() + static_cast<std::ptrdiff_t>(at));
}

// Returns a POSIX.1-1988 header of a regular file with mode 644, owned by user and group 0.
TarBlock header_of(std::string_view name, uint64_t size) {
  TarBlock block{};
  set(block, 0, name);
  set(block, 100, "0000644");
  set(block, 108, "0000000");
  set(block, 116, "0000000");
  set(block, 124, fmt::format("{:011o}", size));
  set(block, 136, "00000000000");
  set(block, 148, "        ");  // the checksum is computed with blanks in its own field
  set(block, 156, "0");
  set(block, 257, "ustar");
  set(block, 263, "00");
  set(block, 148, fmt::format("{:06o}", std::accumulate(block.begin(), block.end(), 0U)));
  block[154] = 0;
  return block;
}

}  // namespace

void TarWriter::add(std::string_view name, std::span<const uint8_t> bytes) {
  if (name.size() > 100 || bytes.size() >> 33 != 0) {
    throw Error(fmt::format("{} of {} bytes does not fit into a tar file", name, bytes.size()));
  }
  write(header_of(name, bytes.size()));
  write(bytes);
  const size_t rest = bytes.size() % kTarBlock;
  if (rest > 0) write(std::span(kZeros).first(kTarBlock - rest));
}

void TarWriter::finish() {
  write(kZeros);
  write(kZeros);
  flush();
  file_.finish();
}

void TarWriter::write(std::span<const uint8_t> bytes) {
  bytes_ += bytes.size();
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  if (buffer_.size() >= kBuffered) flush();
}

void TarWriter::flush() {
  file_.write(std::as_bytes(std::span(buffer_)));
  buffer_.clear();
}

uint64_t TarWriter::bytes_of(uint64_t member) {
  return kTarBlock + (member + kTarBlock - 1) / kTarBlock * kTarBlock;
}

}  // namespace trireme::data
