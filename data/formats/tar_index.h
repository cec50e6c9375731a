// What is where in a shard, as it is kept in a file: found by one walk through the shard
// (tar_walk.h), then mapped, so that neither opening nor memory depends on the number of samples.
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
  uint64_t offset = 0;  // of the image's first byte in the shard
  uint32_t size = 0;    // of the image
  int32_t label = 0;    // at least 0
};

// What makes no sample of a record, or a shard end early.
struct TarProblem {
  std::string where;  // the record or member; empty: the shard
  std::string what;
};

// What an index was made from. Where this has changed, it has to be made again.
struct TarStamp {
  TarStamp() = default;
  TarStamp(const struct stat& shard, uint64_t settings_of_labels);

  uint64_t bytes = 0;
  int64_t time = 0;       // of the last change, in ns
  uint64_t settings = 0;  // hash of where labels come from

  bool operator==(const TarStamp&) const = default;
  bool is_of(const struct stat& shard) const { return *this == TarStamp(shard, settings); }
};

class TarIndex {
 public:
  // Nothing when the bytes are no index, damaged, of another version or of another stamp.
  static std::optional<TarIndex> read(MappedFile file, const TarStamp& stamp);
  static std::optional<TarIndex> read(std::vector<uint8_t> bytes, const TarStamp& stamp);

  const TarStamp& stamp() const { return stamp_; }
  std::span<const uint8_t> bytes() const;  // as kept in a file
  std::span<const TarSample> samples() const { return samples_; }
  // The path of a sample's image within the shard.
  std::string_view name(size_t index) const;
  int32_t largest_label() const { return largest_label_; }  // -1: there is no sample
  int64_t problem_count() const { return problem_count_; }
  const std::vector<TarProblem>& problems() const { return problems_; }  // the first few

 private:
  using Memory = std::variant<MappedFile, std::vector<uint8_t>>;

  TarIndex(Memory memory, const TarStamp& stamp) : memory_(std::move(memory)), stamp_(stamp) {}
  static std::optional<TarIndex> checked(TarIndex index);
  // Whether all is as it was written, and then what it is.
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

// Collects an index.
class TarIndexWriter {
 public:
  // False when there is no room for more names (4 GiB of them).
  bool add(const TarSample& sample, std::string_view name);
  void add(TarProblem problem);
  int64_t problem_count() const { return problem_count_; }
  // In memory.
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
