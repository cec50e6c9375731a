// For the formats of samples: opens both policies, and reads what there is.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "data/data.pb.h"
#include "data/dataset.h"
#include "tests/fuzz/fuzz.h"

namespace trireme::fuzz {

// First and last sample; the sanitizer sees what is read beyond the end.
inline void read_ends(const data::Dataset& dataset) {
  std::vector<std::byte> input(dataset.spec().input.bytes());
  std::vector<std::byte> target(dataset.spec().target.bytes());
  require(dataset.size() >= 1, "a dataset holds a sample");
  dataset.read({0}, input.data(), target.data());
  dataset.read({dataset.size() - 1}, input.data(), target.data());
  if (dataset.spec().classes == 0) return;
  std::vector<int32_t> labels(target.size() / sizeof(int32_t));  // a sample of tokens has several
  std::memcpy(labels.data(), target.data(), target.size());
  for (const int32_t label : labels) {
    require(label >= 0 && label < dataset.spec().classes, "labels are classes");
  }
}

// What FAIL takes SKIP takes too, without anything left out.
inline void open_both_ways(DataConfig config, data::Part part) {
  int64_t whole = -1;
  refuse_with<DataError>([&] {
    config.set_on_bad_record(DataConfig::FAIL);
    const auto dataset = data::open_dataset(config, part);
    read_ends(*dataset);
    require(dataset->bad_records().count == 0, "FAIL leaves nothing out");
    whole = dataset->size();
  });
  int64_t kept = -1;
  refuse_with<DataError>([&] {
    config.set_on_bad_record(DataConfig::SKIP);
    const auto dataset = data::open_dataset(config, part);
    read_ends(*dataset);
    kept = dataset->size();
    require(whole < 0 || dataset->bad_records().count == 0, "what is good stays");
    require(whole >= 0 || dataset->bad_records().count > 0, "what is left out is counted");
  });
  require(whole < 0 || kept == whole, "SKIP takes what FAIL takes");
}

}  // namespace trireme::fuzz
