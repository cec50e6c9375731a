// Whole files as bytes, gzip undone, found under the names they commonly have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

struct File {
  std::string path;
  std::vector<uint8_t> bytes;
  std::string damage;  // why the bytes may not be all, or right; empty: they are
};

// Throws ConfigError when `root` (empty: the working directory) is no folder; `hint` is appended.
void check_root(const std::string& root, const std::string& hint = "");

// The first of `names` that exists in folder `root` (names may be absolute), as itself or with
// ".gz". Throws ConfigError when `root` is no folder, DataError naming all that was tried. `hint`
// is appended to the latter.
std::string find_file(const std::string& root, std::span<const std::string> names,
                      const std::string& hint = "");

// What to do with a damaged gzip stream.
enum class OnDamage { kThrow, kKeepWhatCameBefore };

// Reads and, if it begins like gzip, decompresses. Throws DataError.
File read_file(const std::string& path, OnDamage on_damage = OnDamage::kThrow);

}  // namespace trireme::data
