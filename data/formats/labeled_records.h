// Reads texts with labels: tables with named columns, and folders of text files by class.
#pragma once

#include <functional>
#include <string>

#include "data/bad_records.h"
#include "data/data.pb.h"

namespace trireme::data {

struct LabeledRecord {
  std::string where;  // "FILE: line 12", or the path of a text file
  std::string text;   // UTF-8, with at least one character that is not white space
  std::string label;  // not empty, unless labels are not required
};

// The meaning of quotes in tables: they enclose fields; they do, unless they seem to enclose the
// end of a row and the start of another; or they are characters like any other.
enum class Quotes { kEnclose, kLikely, kLiteral };

struct LabeledColumns {
  std::string text;
  std::string label;
  Quotes quotes = Quotes::kLikely;
  bool requires_label = true;
};

// Calls add(record) for each text of `path`, in order. A folder has a subfolder of *.txt files for
// each class or, if labels are not required, may have files itself; *.csv and *.tsv are tables as
// in RFC 4180 whose first line names the columns; *.jsonl and *.json have one object per line. Any
// other file is a text without a label. Files may be compressed with gzip. Reports lines and files
// that are empty, are not UTF-8 or have no text or label to `policy`. Throws DataError if a file
// cannot be read or has no such columns.
void read_labeled_records(const std::string& path, const LabeledColumns& columns,
                          BadRecordPolicy& policy, const std::function<void(LabeledRecord)>& add);

}  // namespace trireme::data
