// Opens the indexes of many shards, and the shards themselves when they are read.
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

// One of the two, or neither where opening stopped before.
struct OpenedIndex {
  std::optional<TarIndex> index;
  std::exception_ptr error;
};

// On all cores of the process; shards that another process is indexing come last. Stops at the
// first error, or at the first problem of an index too. `progress` (may be empty) is told on this
// thread which shard is being indexed.
std::vector<OpenedIndex> open_indexes(const std::vector<std::string>& shards,
                                      const TarIndexFiles& files, bool stop_at_problems,
                                      const std::function<void(std::string_view)>& progress);

// Shards that are opened when they are first read, and kept open: as many as a quarter of what the
// process may open, those that were used last. For any thread.
class ShardFiles {
 public:
  explicit ShardFiles(size_t shards);

  // Throws DataError when it cannot be opened or is not as it was when it was indexed.
  std::shared_ptr<const Descriptor> open(size_t shard, const std::string& path,
                                         const TarStamp& stamp);

 private:
  struct Slot {
    std::shared_ptr<const Descriptor> file;
    uint64_t used = 0;  // when: the most uses so far
  };
  void make_room();

  const size_t most_;
  std::mutex mutex_;  // of all below
  std::vector<Slot> slots_;
  size_t open_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace trireme::data
