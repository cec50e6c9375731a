// What of a pack is done: kept in a file beside the shards, so that it can go on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/bad_records.h"

namespace trireme::data {

// A shard that is whole.
struct PackedShard {
  std::string name;     // of its file
  uint64_t bytes = 0;   // of its file
  int64_t samples = 0;  // in it
  int64_t end = 0;      // records that are in this shard and those before, or were left out
  BadRecords bad = {};  // that were left out of them
};

struct PackState {
  std::string plan;  // JSON: what is packed, and how
  std::vector<PackedShard> shards;
  bool done = false;

  int64_t end() const { return shards.empty() ? 0 : shards.back().end; }
  int64_t samples() const;
  BadRecords bad() const { return shards.empty() ? BadRecords{} : shards.back().bad; }
};

// What `path` holds; nothing where it is not there. Throws DataError when it is damaged.
std::optional<PackState> read_pack_state(const std::string& path);
// The same, or a new state where it is not there; shards from the first that is missing in
// `folder` or has another size are left out. Throws ConfigError when it is of another plan, naming
// what differs.
PackState load_pack_state(const std::string& path, const std::string& folder,
                          const std::string& plan);
void save_pack_state(const PackState& state, const std::string& path);

}  // namespace trireme::data
