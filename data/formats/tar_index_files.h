// Finds and creates the index files of tar shards.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/formats/tar_index.h"
#include "data/formats/tar_walk.h"

namespace trireme::data {

// Several processes may use the same files: each index is built by only one of them and becomes
// visible to the others when it is complete. Thread-safe.
class TarIndexFiles {
 public:
  // `folder` is data.webdataset.index_folder. If it is empty, index files are stored next to the
  // shards, or in the user's cache folder if the shards' folder is read-only.
  TarIndexFiles(std::string folder, LabelSource labels);

  // Returns the saved index of the shard, or nullopt if there is none or it is out of date. Throws
  // DataError if the shard cannot be accessed.
  std::optional<TarIndex> find(const std::string& shard) const;
  enum class WhenBusy { kSkip, kWait };
  // Builds the index and saves it in a file, or only in memory if no file can be written. If
  // another process is building it, waits for that process or, with kSkip, returns nullopt. Throws
  // as walk_tar() does.
  std::optional<TarIndex> make(const std::string& shard, WhenBusy when_busy) const;

 private:
  // Returns the paths at which the index may be stored, the preferred one first.
  std::vector<std::string> candidate_paths(const std::string& shard) const;

  const std::string folder_;
  const LabelSource labels_;
};

}  // namespace trireme::data
