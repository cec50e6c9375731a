// Matches the columns of tables (CSV files), which need not have the same order in all files of a
// run.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

// The columns of the table that a network is trained on, in the order of that table.
struct TableColumns {
  std::vector<std::string> names;  // from the header; empty if there is none
  int64_t count = 0;               // 0 if the samples do not come from a table
  std::vector<int64_t> labels;     // indices, in the order of the targets; the others are features

  std::vector<int64_t> features() const;         // indices of the feature columns
  std::vector<std::string> label_names() const;  // empty without a header
  bool operator==(const TableColumns&) const = default;
};

// Column indices in a file, in the order in which the network reads them.
struct MatchedColumns {
  std::vector<int64_t> features;
  std::vector<int64_t> labels;  // empty if the file has none
};

enum class Labels { kRequired, kOptional };

// Finds the columns of the training table in another table, which has `count` columns named `names`
// (empty without a header). If both tables have a header, matches columns by name. Otherwise
// matches them by position: the table must then have as many columns as the training table or, if
// labels are optional, as there are features. Throws DataError with `path` and the names that are
// missing, unknown or duplicate.
MatchedColumns match_columns(const TableColumns& trained, std::span<const std::string> names,
                             int64_t count, const std::string& path, Labels labels);

}  // namespace trireme::data
