// Which column of a table is which: files of one run need not have their columns in the same order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

// The columns of the table that a network is trained on, in its order.
struct TableColumns {
  std::vector<std::string> names;  // of the header; empty: it has none
  int64_t count = 0;               // 0: the samples come from no table
  std::vector<int64_t> labels;     // in the order of the targets; all others are features

  std::vector<int64_t> features() const;
  std::vector<std::string> label_names() const;  // empty without a header
  bool operator==(const TableColumns&) const = default;
};

// Indices of columns in some file, in the order that the network reads them.
struct MatchedColumns {
  std::vector<int64_t> features;
  std::vector<int64_t> labels;  // empty where the file has none
};

enum class Labels { kNeeded, kOptional };

// Finds the columns of the training table in another one of `count` columns. Where both have a
// header they are found by name; otherwise by position, and there must be as many, or as many as
// there are features when labels are optional. Throws DataError with `path` and the names that are
// missing, unknown or there twice.
MatchedColumns match_columns(const TableColumns& trained, std::span<const std::string> names,
                             int64_t count, const std::string& path, Labels labels);

}  // namespace trireme::data
