#include "data/pack/pack.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "data/formats/tar_shards.h"
#include "data/pack/ordered_work.h"
#include "data/pack/tar_writer.h"
#include "data/sampler.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

int64_t records_of(const PackSource& source, const PackOptions& options) {
  return std::min(source.size(), options.samples.value_or(source.size()));
}

std::string plan_of(const PackSource& source, const PackOptions& options) {
  nlohmann::ordered_json plan = {{"source", source.description()},
                                 {"identity", fmt::format("{:016x}", source.identity())},
                                 {"records", records_of(source, options)},
                                 {"shard size", options.shard_bytes},
                                 {"shuffle", nullptr},
                                 {"resize", options.images.resize},
                                 {"quality", options.images.quality},
                                 {"EXIF orientation", options.images.apply_exif_orientation}};
  if (options.shuffle) plan["shuffle"] = *options.shuffle;
  return plan.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

constexpr std::string_view kTar = "tar";

class Packer {
 public:
  Packer(const PackSource& source, const PackOptions& options)
      : source_(source),
        options_(options),
        state_path_(pack_state_path(options.folder, options.name)),
        records_(records_of(source, options)),
        lock_(lock_pack_folder(options.folder, options.note)),
        order_({.shuffle = options.shuffle.has_value()}, options.shuffle.value_or(0), 0,
               source.size()),
        state_(begin_pack(options.folder, options.name, kTar, plan_of(source, options))),
        before_(state_.bad()),
        policy_(options.bad_limit) {}

  PackState run() {
    with_class_names(check_meaning);
    if (!state_.done && !pack_records()) return std::move(state_);
    with_class_names(write_meaning);
    check_indexes();
    if (!state_.done) {
      state_.done = true;
      save_pack_state(state_, state_path_);
    }
    return std::move(state_);
  }

 private:
  // Returns false if options_.stop stopped packing.
  bool pack_records() {
    const int threads = std::max(1, options_.threads);
    std::deque<PackTools> tools;  // its elements cannot be moved
    for (int i = 0; i < threads; ++i) tools.emplace_back(options_.images.apply_exif_orientation);
    const int64_t begin = state_.end();
    OrderedWork<PackedSample> work(
        threads, 8 * threads, begin, records_,
        [&](int thread, int64_t record) { return source_.read(order_(record), tools[thread]); });
    for (int64_t record = begin; record < records_; ++record) {
      if (options_.stop && options_.stop()) return false;
      try {
        add(record, work.next());
      } catch (const DataError& error) {
        policy_.add(error);
        policy_.check(source_.description(), before_.count + source_.bad_records().count);
      }
      if (options_.progress) options_.progress(record + 1, records_);
    }
    if (!shard_ && !state_.shards.empty()) {  // all records after the last shard were skipped
      state_.shards.back().end = records_;
      state_.shards.back().bad = bad();
    }
    finish_shard(records_);
    policy_.check_not_empty(source_.description(), state_.samples());
    return true;
  }

  void add(int64_t record, const PackedSample& sample) {
    const std::string label = std::to_string(sample.label) + "\n";
    const uint64_t bytes =
        TarWriter::bytes_of(sample.bytes.size()) + TarWriter::bytes_of(label.size());
    if (shard_ && shard_->bytes() + bytes > static_cast<uint64_t>(options_.shard_bytes)) {
      finish_shard(record);
    }
    if (!shard_) {
      const std::string name = shard_name(options_.name, state_.shards.size(), kTar);
      shard_ = std::make_unique<TarWriter>((fs::path(options_.folder) / name).string());
    }
    const std::string key = fmt::format("{:09}", record);
    shard_->add(fmt::format("{}.{}", key, sample.extension), sample.bytes);
    shard_->add(key + ".cls", {reinterpret_cast<const uint8_t*>(label.data()), label.size()});
    ++samples_;
  }

  // `end` is the number of records that were packed or skipped.
  void finish_shard(int64_t end) {
    if (!shard_) return;
    shard_->finish();
    state_.shards.push_back({.name = shard_name(options_.name, state_.shards.size(), kTar),
                             .bytes = shard_->bytes(),
                             .samples = std::exchange(samples_, 0),
                             .end = end,
                             .bad = bad()});
    shard_.reset();
    save_pack_state(state_, state_path_);
  }

  // Returns the records skipped by this call and earlier ones.
  BadRecords bad() const {
    BadRecords all = before_;
    const BadRecords& now = policy_.found();
    all.count += now.count;
    for (const std::string& what : now.first) {
      if (all.first.size() < 5) all.first.push_back(what);
    }
    return all;
  }

  // Calls `use` for classes.txt, if classes have names.
  template <class Use>
  void with_class_names(Use use) const {
    const std::vector<std::string> names = source_.class_names();
    if (names.empty()) return;
    use((fs::path(options_.folder) / "classes.txt").string(),
        fmt::format("{}\n", fmt::join(names, "\n")), "classes");
  }

  // Creates the indexes, so that opening the shards is fast, and compares their numbers of samples
  // with those that were written.
  void check_indexes() const {
    std::vector<std::string> paths;
    for (const PackedShard& shard : state_.shards) {
      paths.push_back((fs::path(options_.folder) / shard.name).string());
    }
    const auto indexes = open_indexes(paths, TarIndexFiles("", {}), true, options_.note);
    for (size_t i = 0; i < paths.size(); ++i) {
      if (indexes[i].error) std::rethrow_exception(indexes[i].error);
      const int64_t found = indexes[i].index ? std::ssize(indexes[i].index->samples()) : 0;
      if (found == state_.shards[i].samples) continue;
      throw DataError(paths[i], fmt::format("has {} samples, but {} were written; remove it and "
                                            "pack again",
                                            found, state_.shards[i].samples));
    }
  }

  const PackSource& source_;
  const PackOptions& options_;
  const std::string state_path_;
  const int64_t records_;
  const FolderLock lock_;
  const Order order_;
  PackState state_;
  BadRecords before_;  // skipped by earlier calls
  BadRecordPolicy policy_;
  std::unique_ptr<TarWriter> shard_;
  int64_t samples_ = 0;  // samples in shard_
};

}  // namespace

PackState pack(const PackSource& source, const PackOptions& options) {
  return Packer(source, options).run();
}

}  // namespace trireme::data
