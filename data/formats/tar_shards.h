// Opens the indexes of many shards, and the shards themselves on demand.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/descriptor.h"
#include "data/formats/tar_index.h"
#include "data/formats/tar_index_files.h"

namespace trireme::data {

// The index of a shard or the error that prevented opening it; neither if opening stopped before.
struct OpenedIndex {
  std::optional<TarIndex> index;
  std::exception_ptr error;
};

// Returns the index of each shard, building missing ones on all cores of the process. Shards that
// another process is indexing are left for last. Stops at the first error and, if
// `stop_at_problems` is true, at the first index with problems. Calls `progress`, unless it is
// empty, on the calling thread with messages such as "indexing shard 12 of 1282".
std::vector<OpenedIndex> open_indexes(const std::vector<std::string>& shards,
                                      const TarIndexFiles& files, bool stop_at_problems,
                                      const std::function<void(std::string_view)>& progress);

// The file descriptors of shards, opened on first use. At most a quarter of the process's limit of
// open files stay open: the most recently used ones. Thread-safe.
class ShardFiles {
 public:
  explicit ShardFiles(size_t shards);

  // Returns the open file of a shard. Throws DataError if the shard cannot be opened or has changed
  // since it was indexed.
  std::shared_ptr<const Descriptor> open(size_t shard, const std::string& path,
                                         const TarStamp& stamp);

 private:
  struct Slot {
    std::shared_ptr<const Descriptor> file;
    uint64_t used = 0;  // value of uses_ at its last use
  };
  // Closes the least recently used file.
  void evict();

  const size_t max_open_;
  std::mutex mutex_;  // guards the members below
  std::vector<Slot> slots_;
  size_t open_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace trireme::data
