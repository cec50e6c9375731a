// Reads tables of numbers from delimited text (CSV, TSV).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/bad_records.h"
#include "data/data.pb.h"
#include "data/files/file.h"

namespace trireme::data {

struct Table {
  std::string path;
  std::vector<std::string> names;  // from the header; empty if there is no header
  int64_t columns = 0;
  std::vector<float> values;     // [rows, columns], all finite
  std::vector<int64_t> lines;    // line number of each row, from 1
  std::vector<int64_t> records;  // record number of each row, from 0, counting skipped records

  int64_t rows() const { return static_cast<int64_t>(lines.size()); }
  float at(int64_t row, int64_t column) const { return values[row * columns + column]; }
  // Returns "FILE: line 12, column 3 ('width')". `row` and `column` count from 0, as in at().
  std::string where(int64_t row, int64_t column) const;
};

// Returns the rows of the file. Fields may be quoted and surrounded by blanks; empty lines are
// ignored. If `only` is not empty, parses only these columns; the others may hold anything, and
// their values are 0. Reports lines with invalid numbers or a wrong number of fields to `policy`.
// Throws DataError if no rows remain.
Table read_table(const File& file, char delimiter, CsvConfig::Header header,
                 BadRecordPolicy& policy, std::span<const int64_t> only = {});
// Returns a table with column names and the number of columns, but no rows. Throws DataError if the
// file has no lines.
Table read_head(const File& file, char delimiter, CsvConfig::Header header);
// Removes the rows for which `keep` is false.
void keep_rows(Table& table, const std::vector<bool>& keep);

}  // namespace trireme::data
