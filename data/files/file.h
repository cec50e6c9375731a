// Finds files and reads them into memory, decompressing gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

struct File {
  std::string path;
  std::vector<uint8_t> bytes;
  std::string damage;  // why the bytes may be incomplete or wrong; empty if they are intact
};

// Throws DataError about data.root if `root` is not a folder. An empty `root` is the working
// directory. `hint` is appended to the message.
void check_root(const std::string& root, const std::string& hint = "");

// Returns the path of the first of `names` that exists in folder `root`, as it is or with ".gz"
// appended. Names may be absolute. Throws DataError if `root` is not a folder, or listing all names
// that were tried; `hint` is appended to the message.
std::string find_file(const std::string& root, std::span<const std::string> names,
                      const std::string& hint = "");

// The handling of a damaged gzip stream: throw DataError, or return the bytes before the damage.
enum class OnDamage { kThrow, kReadUpToDamage };

// Returns the number of bytes that a file must have according to its first kHeadBytes bytes (or
// fewer, if it is shorter), or throws DataError.
constexpr size_t kHeadBytes = 64;
using SizeFromHead = std::function<uint64_t(std::span<const uint8_t> head)>;

// Reads a file, and decompresses it if it begins with the magic number of gzip. Throws DataError if
// the file cannot be read or exceeds process_memory_limit(). Decompression ends one byte after the
// size from `size_of`, which must not exceed it either. Without `size_of`, a file that becomes more
// than 200 times larger (and than 16 MiB) or than a quarter of that limit is refused: a small file
// of zeros can become 1000 times larger.
File read_file(const std::string& path, OnDamage on_damage = OnDamage::kThrow,
               const SizeFromHead& size_of = {});
// Returns the lines of a text file, which end with "\n" or "\r\n". Throws as read_file() does.
std::vector<std::string> read_lines(const std::string& path);

}  // namespace trireme::data
