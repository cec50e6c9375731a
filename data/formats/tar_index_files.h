// Where the indexes of shards are kept, and who makes them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/formats/tar_index.h"
#include "data/formats/tar_walk.h"

namespace trireme::data {

// Many processes may use one set of files at once: each index is made by one of them, and is seen
// when it is whole. All of this is for any thread.
class TarIndexFiles {
 public:
  // `folder`: as in data.webdataset.index_folder; empty: beside the shards, or else in the user's
  // cache.
  TarIndexFiles(std::string folder, LabelSource labels);

  // The index that there is; nothing when there is none of this shard as it is now. Throws
  // DataError when the shard cannot be looked at.
  std::optional<TarIndex> find(const std::string& shard) const;
  enum class WhenBusy { kLeave, kWait };
  // Makes it and keeps it in a file, or in memory where none can be written. Nothing when another
  // process is making it, unless that is to be waited for. Throws as walk_tar does.
  std::optional<TarIndex> make(const std::string& shard, WhenBusy when_busy) const;

 private:
  // The files that may hold it, the best first.
  std::vector<std::string> places(const std::string& shard) const;

  const std::string folder_;
  const LabelSource labels_;
};

}  // namespace trireme::data
