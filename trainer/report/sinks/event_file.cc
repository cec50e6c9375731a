#include "trainer/report/sinks/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <ctime>

#include "core/host_name.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFilePrefix = "events.out.tfevents.";

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78U : 0);
    table[i] = crc;
  }
  return table;
}

// Masks a CRC as the TFRecord format requires, since the CRC of data that contains its own CRC is
// degenerate.
uint32_t masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U; }

template <class T>
std::string_view bytes_of(const T& number) {
  static_assert(std::endian::native == std::endian::little);
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

// TensorBoard reads files in the order of their names, which begin with a time in seconds. If a run
// restarts within the same second, its file gets the next unused time.
fs::path next_name(const fs::path& folder) {
  int64_t time = std::time(nullptr);
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kFilePrefix)) continue;
    int64_t other = 0;
    std::from_chars(name.data() + kFilePrefix.size(), name.data() + name.size(), other);
    time = std::max(time, other + 1);
  }
  return folder / fmt::format("{}{:010}.{}.{}", kFilePrefix, time, host_name(), ::getpid());
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc = kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xFF] ^ (crc >> 8);
  }
  return ~crc;
}

void append_record(std::string_view bytes, std::string& to) {
  const uint64_t length = bytes.size();
  to += bytes_of(length);
  to += bytes_of(masked(crc32c(bytes_of(length))));
  to += bytes;
  to += bytes_of(masked(crc32c(bytes)));
}

EventFile::EventFile(const fs::path& folder) : file_(next_name(folder), 0) {}

void EventFile::add(const tensorboard::Event& event) {
  append_record(event.SerializeAsString(), file_.buffer());
}

}  // namespace trireme::train
