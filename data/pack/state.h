// The progress of packing, saved in a file next to the shards, so that packing can be resumed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/folder_lock.h"
#include "data/bad_records.h"

namespace trireme::data {

// A finished shard.
struct PackedShard {
  std::string name;     // file name
  uint64_t bytes = 0;   // file size
  int64_t samples = 0;  // samples in the shard
  int64_t end = 0;      // records packed or skipped up to the end of this shard
  BadRecords bad = {};  // records skipped up to the end of this shard
};

struct PackState {
  std::string plan;  // the source and the settings, as JSON
  std::vector<PackedShard> shards;
  bool done = false;

  int64_t end() const { return shards.empty() ? 0 : shards.back().end; }
  int64_t samples() const;
  BadRecords bad() const { return shards.empty() ? BadRecords{} : shards.back().bad; }
};

// Returns the state saved in file `path`, or nullopt if the file does not exist. Throws DataError
// if it is damaged.
std::optional<PackState> read_pack_state(const std::string& path);
// Returns the file of the state of packing into shards NAME-000000.tar and so on: NAME.pack.json.
std::string pack_state_path(const std::string& folder, const std::string& name);
// Returns the saved state, or a new state, which is saved at once, so that a packing that is killed
// can be continued. Drops the first shard that is missing or has a different size, and all shards
// after it. Throws ConfigError naming the first difference if there are shards of a different plan,
// and ConfigError if packing would overwrite a shard although there is no state. Requires a lock on
// the folder.
PackState begin_pack(const std::string& folder, const std::string& name, std::string_view extension,
                     const std::string& plan);
// Creates the folder if it is missing, and locks it. Throws Error if that fails or another process
// packs into it. Calls `note` if the file system has no locks.
FolderLock lock_pack_folder(const std::string& folder,
                            const std::function<void(std::string_view)>& note);
// Returns "train-000012.tar", and "train-{000000..000012}.tar" for 13 shards.
std::string shard_name(const std::string& name, size_t number, std::string_view extension);
std::string shard_pattern(const std::string& name, size_t shards, std::string_view extension);
// Replaces the file atomically. Throws Error if it cannot be written.
void save_pack_state(const PackState& state, const std::string& path);
// Throws ConfigError if there is a file that tells what labels or tokens mean (`what`: "classes")
// and has another text, since the shards in the folder may use it.
void check_meaning(const std::string& path, const std::string& text, const std::string& what);
// Writes such a file, if there is none. Throws as check_meaning().
void write_meaning(const std::string& path, const std::string& text, const std::string& what);

}  // namespace trireme::data
