// Creates tar shards for tests, including unusual ones.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::testing {

// Returns the header block of a member (POSIX ustar).
inline std::string tar_header(std::string_view name, size_t size, char type = '0') {
  std::string block(512, '\0');
  const auto put = [&](size_t at, std::string_view text) {
    text.copy(block.data() + at, text.size());
  };
  put(0, name.substr(0, 100));
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", size));
  put(136, "00000000000");
  put(148, "        ");
  block[156] = type;
  put(257, std::string_view("ustar\0"
                            "00",
                            8));
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum));
  block[154] = '\0';
  return block;
}

inline std::string padded(std::string_view bytes) {
  std::string block(bytes);
  block.resize((bytes.size() + 511) / 512 * 512);
  return block;
}

inline std::string member(std::string_view name, std::string_view bytes, char type = '0') {
  return tar_header(name, bytes.size(), type) + padded(bytes);
}

// Returns a member whose name is in an extended header, as in POSIX.
inline std::string pax_member(std::string_view name, std::string_view bytes) {
  std::string record = fmt::format(" path={}\n", name);
  size_t length = record.size() + 1;
  while (length != record.size() + std::to_string(length).size()) ++length;
  return member("PaxHeader", std::to_string(length) + record, 'x') + member("short", bytes);
}

// Returns a member whose name is in a member before it, as in GNU tar.
inline std::string gnu_member(std::string_view name, std::string_view bytes) {
  return member("././@LongLink", std::string(name) + '\0', 'L') + member(name, bytes);
}

inline std::string tar_end() { return std::string(1024, '\0'); }

// Returns a sample, which consists of two members.
inline std::string sample_members(std::string_view key, std::string_view image,
                                  std::string_view label) {
  return member(fmt::format("{}.jpg", key), image) + member(fmt::format("{}.cls", key), label);
}

}  // namespace trireme::testing
