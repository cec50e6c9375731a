// Text with rows of numbers, checked field by field.
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
  std::vector<std::string> names;  // of the header; empty when there is none
  int64_t columns = 0;
  std::vector<float> values;     // [rows, columns], all finite
  std::vector<int64_t> lines;    // of each row, from 1
  std::vector<int64_t> records;  // number of each row, from 0, those left out counted

  int64_t rows() const { return static_cast<int64_t>(lines.size()); }
  float at(int64_t row, int64_t column) const { return values[row * columns + column]; }
  // "FILE: line 12, column 3 ('width')"; row and column from 0, as in `at`.
  std::string where(int64_t row, int64_t column) const;
};

// Fields may be quoted and have blanks around them; empty lines are passed over. Lines that do not
// hold as many numbers as the first has fields go to the policy, with line and column counted from
// 1. Throws DataError when nothing is left. Of columns that are not in `only`, unless that is
// empty, fields may hold anything, and values are 0.
Table read_table(const File& file, char delimiter, CsvConfig::Header header,
                 BadRecordPolicy& policy, std::span<const int64_t> only = {});
// Its names and the number of its columns alone. Throws DataError when it has no lines.
Table read_head(const File& file, char delimiter, CsvConfig::Header header);
// Leaves out the rows that are not to stay.
void keep_rows(Table& table, const std::vector<bool>& stays);

}  // namespace trireme::data
