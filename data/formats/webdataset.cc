#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/files/file_names.h"
#include "data/formats/formats.h"
#include "data/formats/tar_shards.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

struct Shard {
  std::string path;
  TarIndex index;
  // Indices of the samples that are used, if samples are skipped because of invalid labels.
  std::optional<std::vector<uint32_t>> used = {};
  int64_t end = 0;  // number of records in this shard and all shards before it

  int64_t size() const { return used ? std::ssize(*used) : std::ssize(index.samples()); }
  size_t sample(int64_t record) const {
    const size_t i = record;
    return used ? (*used)[i] : i;
  }
};

class TarRecords final : public Records {
 public:
  TarRecords(std::string source, std::vector<Shard> shards, int classes,
             std::vector<std::string> class_names, BadRecords bad)
      : source_(std::move(source)),
        shards_(std::move(shards)),
        classes_(classes),
        class_names_(std::move(class_names)),
        bad_(std::move(bad)),
        files_(shards_.size()) {
    int64_t end = 0;
    for (Shard& shard : shards_) shard.end = end += shard.size();
  }

  int64_t size() const override { return shards_.back().end; }
  int classes() const override { return classes_; }
  int32_t label(int64_t index) const override {
    const auto [shard, sample] = find(index);
    return shards_[shard].index.samples()[sample].label;
  }
  void read(int64_t index, std::vector<uint8_t>& bytes) const override;
  std::string where(int64_t index) const override {
    const auto [shard, sample] = find(index);
    return fmt::format("{}: {}", shards_[shard].path, shards_[shard].index.name(sample));
  }
  std::string source() const override { return source_; }
  std::vector<std::string> class_names() const override { return class_names_; }
  BadRecords bad_records() const override { return bad_; }
  uint64_t identity() const override;
  Checksums checksums() const override;

 private:
  struct Place {
    size_t shard;
    size_t sample;  // position in the shard's index
  };
  Place find(int64_t index) const {
    const auto shard = std::ranges::upper_bound(shards_, index, {}, &Shard::end);
    const size_t number = shard - shards_.begin();
    return {number, shard->sample(index - shard->end + shard->size())};
  }

  const std::string source_;
  std::vector<Shard> shards_;
  const int classes_;
  const std::vector<std::string> class_names_;
  const BadRecords bad_;
  mutable ShardFiles files_;
};

void TarRecords::read(int64_t index, std::vector<uint8_t>& bytes) const {
  const auto [number, sample] = find(index);
  const Shard& shard = shards_[number];
  const TarSample& image = shard.index.samples()[sample];
  const auto file = files_.open(number, shard.path, shard.index.stamp());
  read_record(*file, where(index), image.offset, image.size, bytes);
}

uint64_t TarRecords::identity() const {
  std::string all = fmt::format("{} classes", classes_);
  for (const Shard& shard : shards_) {
    const TarStamp& stamp = shard.index.stamp();
    all += fmt::format("\n{} {} {} {} {} {}", fs::path(shard.path).filename().string(), stamp.bytes,
                       stamp.modified, stamp.changed, stamp.settings, shard.size());
  }
  return XXH3_64bits(all.data(), all.size());
}

// Does not depend on how records are distributed over shards.
Checksums TarRecords::checksums() const {
  Checksums sums;
  for (const Shard& shard : shards_) {
    for (int64_t record = 0; record < shard.size(); ++record) {
      const size_t i = shard.sample(record);
      const TarSample& sample = shard.index.samples()[i];
      sums.inputs =
          checksum_of(shard.index.name(i), checksum_of(std::array{sample.size}, sums.inputs));
      sums.targets = checksum_of(std::array{sample.label}, sums.targets);
    }
  }
  return sums;
}

struct Patterns {
  const google::protobuf::RepeatedPtrField<std::string>& files;
  const char* field;
};

Patterns patterns_of(const WebDatasetConfig& config, Part part) {
  if (part == Part::kTraining) return {config.train(), "data.webdataset.train"};
  return {config.eval(), "data.webdataset.eval"};
}

// Returns "WebDataset data/x/train-{000000..001281}.tar (1282 shards)".
std::string source_of(const DataConfig& config, const Patterns& patterns, size_t shards) {
  std::vector<std::string> paths;
  for (const std::string& name : patterns.files) {
    paths.push_back((fs::path(config.root()) / name).string());
  }
  return fmt::format("WebDataset {} ({} shard{})", fmt::join(paths, ", "), shards,
                     shards == 1 ? "" : "s");
}

TarIndexFiles index_files(const WebDatasetConfig& config) {
  return {config.index_folder(), {config.json_label()}};
}

void add_problems(const std::string& path, const TarIndex& index, BadRecordPolicy& policy) {
  int64_t left = index.problem_count();
  for (const TarProblem& problem : index.problems()) {
    const std::string where =
        problem.where.empty() ? path : fmt::format("{}: {}", path, problem.where);
    const bool is_last = &problem == &index.problems().back();
    // The index has only the number of the problems that follow the last one.
    policy.add(DataError(where, problem.what), is_last ? left : 1);
    --left;
  }
}

std::vector<Shard> open_shards(const std::vector<std::string>& paths,
                               const WebDatasetConfig& config, const OpenOptions& options,
                               BadRecordPolicy& policy) {
  auto opened = open_indexes(paths, index_files(config), !policy.skips(), options.progress);
  std::vector<Shard> shards;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (opened[i].error) std::rethrow_exception(opened[i].error);
    if (!opened[i].index) continue;  // opening stopped because of a later shard
    add_problems(paths[i], *opened[i].index, policy);
    shards.push_back({paths[i], std::move(*opened[i].index)});
  }
  return shards;
}

int32_t largest_label(const std::vector<Shard>& shards) {
  int32_t largest = -1;
  for (const Shard& shard : shards) largest = std::max(largest, shard.index.largest_label());
  return largest;
}

// Returns the number of classes: from the configuration, or else from the training shards.
int count_classes(const DataConfig& config, Part part, const OpenOptions& options,
                  const std::vector<Shard>& shards) {
  const WebDatasetConfig& tar = config.webdataset();
  if (tar.has_classes()) return checked_classes(tar.classes(), "data.webdataset.classes");
  if (part == Part::kTraining) return largest_label(shards) + 1;
  BadRecordPolicy ignored(INT64_MAX);  // opening the training part reports bad records
  const Patterns training = patterns_of(tar, Part::kTraining);
  const auto paths = expand_names(config.root(), training.files, training.field);
  return largest_label(open_shards(paths, tar, options, ignored)) + 1;
}

// Skips samples with invalid labels.
void check_labels(Shard& shard, int classes, BadRecordPolicy& policy) {
  if (shard.index.largest_label() < classes) return;
  const auto samples = shard.index.samples();
  shard.used.emplace();
  for (uint32_t i = 0; i < samples.size(); ++i) {
    if (samples[i].label < classes) {
      shard.used->push_back(i);
      continue;
    }
    policy.add(DataError(fmt::format("{}: {}", shard.path, shard.index.name(i)),
                         fmt::format("label {} is not in [0, {})", samples[i].label, classes)));
  }
}

std::vector<std::string> read_class_names(const DataConfig& config, int classes) {
  if (!config.webdataset().has_class_names()) return {};
  const std::string path = (fs::path(config.root()) / config.webdataset().class_names()).string();
  std::vector<std::string> names = read_lines(path);
  for (std::string& name : names) name = printable(name);
  if (std::ssize(names) >= classes) return names;
  throw DataError(
      path, fmt::format("lists {} class names, but there are {} classes", names.size(), classes));
}

}  // namespace

std::unique_ptr<Records> open_webdataset(const DataConfig& config, Part part,
                                         const OpenOptions& options) {
  const Patterns patterns = patterns_of(config.webdataset(), part);
  const auto paths = expand_names(config.root(), patterns.files, patterns.field);
  const std::string source = source_of(config, patterns, paths.size());
  BadRecordPolicy policy(bad_record_limit(config));
  std::vector<Shard> shards = open_shards(paths, config.webdataset(), options, policy);
  const int classes = count_classes(config, part, options, shards);
  for (Shard& shard : shards) check_labels(shard, classes, policy);
  std::erase_if(shards, [](const Shard& shard) { return shard.size() == 0; });
  policy.check(source);
  policy.check_not_empty(source, std::ssize(shards));
  return std::make_unique<TarRecords>(source, std::move(shards), classes,
                                      read_class_names(config, classes), policy.found());
}

}  // namespace trireme::data
