// Packs a dataset into WebDataset shards.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "data/pack/source.h"
#include "data/pack/state.h"

namespace trireme::data {

struct PackOptions {
  std::string folder;                        // folder of the shards; created if it is missing
  std::string name;                          // shards are NAME-000000.tar and so on
  int64_t shard_bytes = int64_t{256} << 20;  // maximum size of a shard with several samples
  std::optional<int64_t> samples = {};       // packs this many records; empty packs all of them
  std::optional<uint64_t> shuffle = {};      // seed of the random order; empty keeps the order
  PackImages images = {};                    // as passed to open_pack_source
  std::optional<int64_t> bad_limit = {};     // see bad_record_limit
  int threads = 1;
  // Called after each record with the number of finished records and of all records.
  std::function<void(int64_t, int64_t)> progress = {};
  // Called with messages about other slow steps, such as indexing shards.
  std::function<void(std::string_view)> note = {};
  // Called between records. If it returns true, packing stops; another call can resume it.
  std::function<bool()> stop = {};
};

// Writes the shards, their indexes, NAME.pack.json (the state) and, if classes have names,
// classes.txt. The result is deterministic: the same source and options (except threads) produce
// the same bytes. Resumes an earlier call that did not finish. Returns the state, which is not
// `done` if options.stop stopped packing. Throws ConfigError if the folder contains other shards,
// DataError for bad records, and Error if a file cannot be written; finished shards remain.
PackState pack(const PackSource& source, const PackOptions& options);

}  // namespace trireme::data
