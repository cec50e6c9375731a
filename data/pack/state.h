// The progress of packing, saved in a file next to the shards, so that packing can be resumed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
// Creates the folder if it is missing. Returns the saved state, or a new state if there is none.
// Drops the first shard that is missing or has a different size, and all shards after it. Throws
// ConfigError naming the first difference if the state has a different plan, and ConfigError if
// packing would overwrite a shard although there is no state.
PackState begin_pack(const std::string& folder, const std::string& name, std::string_view extension,
                     const std::string& plan);
// Returns "train-000012.tar", and "train-{000000..000012}.tar" for 13 shards.
std::string shard_name(const std::string& name, size_t number, std::string_view extension);
std::string shard_pattern(const std::string& name, size_t shards, std::string_view extension);
// Replaces the file atomically. Throws Error if it cannot be written.
void save_pack_state(const PackState& state, const std::string& path);

}  // namespace trireme::data
