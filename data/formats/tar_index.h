// The index of a tar shard: offset, size, label and name of each sample. It is built by one scan of
// the shard (tar_walk.h), saved in a file, and memory-mapped from then on, so that opening a shard
// takes neither time nor memory proportional to its number of samples.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/files/mapped_file.h"

namespace trireme::data {

struct TarSample {
  uint64_t offset = 0;  // position of the image's first byte in the shard
  uint32_t size = 0;    // bytes of the image
  int32_t label = 0;    // at least 0
};

// The reason why a record is not a valid sample, or why the shard could not be read to its end.
struct TarProblem {
  std::string where;  // the record or member; empty for the shard itself
  std::string what;
};

// Identifies the version of the shard and the settings that an index was built from. An index with
// a different stamp is out of date.
struct TarStamp {
  TarStamp() = default;
  TarStamp(const struct stat& shard, uint64_t label_settings);

  uint64_t bytes = 0;
  int64_t modified = 0;  // in ns, as tools set it
  // When the file was written, renamed or had its attributes set, in ns; nothing can set it.
  int64_t changed = 0;
  uint64_t settings = 0;  // LabelSource::identity

  bool operator==(const TarStamp&) const = default;
  // Returns whether an open shard has the same contents. Its attributes may change any time.
  bool matches(const struct stat& shard) const {
    const TarStamp now(shard, settings);
    return now.bytes == bytes && now.modified == modified;
  }
};

class TarIndex {
 public:
  // Returns nullopt if the bytes are not an index, are damaged, or have a different version or
  // stamp.
  static std::optional<TarIndex> read(MappedFile file, const TarStamp& stamp);
  static std::optional<TarIndex> read(std::vector<uint8_t> bytes, const TarStamp& stamp);

  const TarStamp& stamp() const { return stamp_; }
  std::span<const uint8_t> bytes() const;  // contents of the index file
  std::span<const TarSample> samples() const { return samples_; }
  // Returns the path of a sample's image within the shard.
  std::string_view name(size_t index) const;
  int32_t largest_label() const { return largest_label_; }  // -1 if there are no samples
  int64_t problem_count() const { return problem_count_; }
  const std::vector<TarProblem>& problems() const { return problems_; }  // the first few

 private:
  using Memory = std::variant<MappedFile, std::vector<uint8_t>>;

  TarIndex(Memory memory, const TarStamp& stamp) : memory_(std::move(memory)), stamp_(stamp) {}
  static std::optional<TarIndex> checked(TarIndex index);
  // Sets the members below from the bytes. Returns false if these are not a valid index.
  bool parse();

  Memory memory_;
  TarStamp stamp_;
  std::span<const TarSample> samples_;
  std::span<const uint32_t> name_ends_;
  std::string_view names_;
  int32_t largest_label_ = -1;
  int64_t problem_count_ = 0;
  std::vector<TarProblem> problems_;
};

// Builds an index in memory.
class TarIndexWriter {
 public:
  // Returns false, without adding the sample, if the names would exceed 4 GiB in total.
  bool add(const TarSample& sample, std::string_view name);
  void add(TarProblem problem);
  int64_t problem_count() const { return problem_count_; }
  TarIndex finish(const TarStamp& stamp) const;

 private:
  std::vector<TarSample> samples_;
  std::vector<uint32_t> name_ends_;
  std::string names_;
  int32_t largest_label_ = -1;
  int64_t problem_count_ = 0;
  std::vector<TarProblem> problems_;
};

}  // namespace trireme::data
