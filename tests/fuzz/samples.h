// Helpers for data formats: opens a dataset with both values of on_bad_record and reads samples.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "core/ignored_label.h"
#include "data/data.pb.h"
#include "data/dataset.h"
#include "tests/fuzz/fuzz.h"

namespace trireme::fuzz {

// Reads the first and the last sample; the sanitizers detect accesses out of bounds.
inline void read_ends(const data::Dataset& dataset) {
  std::vector<std::byte> input(dataset.spec().input.bytes());
  std::vector<std::byte> target(dataset.spec().target.bytes());
  require(dataset.size() >= 1, "a dataset has a sample");
  dataset.read({0}, input.data(), target.data());
  dataset.read({dataset.size() - 1}, input.data(), target.data());
  if (dataset.spec().classes == 0) return;
  std::vector<int32_t> labels(target.size() / sizeof(int32_t));  // samples of tokens have several
  std::memcpy(labels.data(), target.data(), target.size());
  for (const int32_t label : labels) {
    const bool padding = label == kIgnoredLabel && dataset.spec().has_token_labels();
    require(padding || (label >= 0 && label < dataset.spec().classes), "labels are valid classes");
  }
}

// Expects a dataset that opens with FAIL to open with SKIP too, without skipped records.
inline void open_with_both_policies(DataConfig config, data::Part part) {
  int64_t size_with_fail = -1;
  accept_or_throw<DataError>([&] {
    config.set_on_bad_record(DataConfig::FAIL);
    const auto dataset = data::open_dataset(config, part);
    read_ends(*dataset);
    require(dataset->bad_records().count == 0, "FAIL skips no records");
    size_with_fail = dataset->size();
  });
  int64_t size_with_skip = -1;
  accept_or_throw<DataError>([&] {
    config.set_on_bad_record(DataConfig::SKIP);
    const auto dataset = data::open_dataset(config, part);
    read_ends(*dataset);
    size_with_skip = dataset->size();
    require(size_with_fail < 0 || dataset->bad_records().count == 0,
            "good records are not skipped");
    require(size_with_fail >= 0 || dataset->bad_records().count > 0, "skipped records are counted");
  });
  require(size_with_fail < 0 || size_with_skip == size_with_fail, "SKIP accepts what FAIL accepts");
}

}  // namespace trireme::fuzz
