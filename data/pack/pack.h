// Writes samples into WebDataset shards.
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
  std::string folder;  // of the shards; made where it is missing
  std::string name;    // shards are NAME-000000.tar and so on
  int64_t shard_bytes = int64_t{256} << 20;
  std::optional<int64_t> samples = {};    // of so many records, the first; empty: of all
  std::optional<uint64_t> shuffle = {};   // seed of their order; empty: as they are numbered
  PackImages images = {};                 // as the source was opened
  std::optional<int64_t> bad_limit = {};  // see bad_record_limit
  int threads = 1;
  // Told of records that are done, of how many; and of what else takes its time.
  std::function<void(int64_t, int64_t)> progress = {};
  std::function<void(std::string_view)> note = {};
  // Asked between records: whether to stop, so that another call can go on.
  std::function<bool()> stop = {};
};

// The shards of the source, their indexes, NAME.pack.json (the state) and, where classes have
// names, classes.txt. The same source and options (but for threads) give the same bytes. What an
// earlier call has finished is kept. Returns the state, which is not `done` when told to stop.
// Throws ConfigError when the folder holds other shards, DataError for bad records, Error when
// something cannot be written; what was finished stays.
PackState pack(const PackSource& source, const PackOptions& options);

// "train-{000000..000012}.tar"
std::string shard_pattern(const std::string& name, size_t shards);

}  // namespace trireme::data
