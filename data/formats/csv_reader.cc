#include "data/formats/csv_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <system_error>

#include "core/error.h"
#include "core/memory_limit.h"
#include "core/text.h"
#include "data/files/lines.h"
#include "data/formats/formats.h"

namespace trireme::data {
namespace {

std::string place(const std::string& path, int64_t line, size_t column,
                  const std::vector<std::string>& names) {
  std::string text = fmt::format("{}: line {}, column {}", path, line, column + 1);
  if (column < names.size()) text += fmt::format(" ('{}')", names[column]);
  return text;
}

// Replaces doubled quotes, which stand for one within a quoted field.
std::string without_doubled_quotes(std::string_view text) {
  std::string single;
  for (size_t at = 0; at < text.size(); ++at) {
    single += text[at];
    if (text.substr(at, 2) == "\"\"") ++at;
  }
  return single;
}

// Parses a decimal number, which must be the entire text. The value may be infinite or NaN.
bool parse(std::string_view text, double& value) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) {
    value = std::strtod(std::string(text).c_str(), nullptr);  // 0 or infinite
  } else if (error != std::errc()) {
    return false;
  }
  return end == text.data() + text.size();
}

// Splits the lines of a text into fields.
class Lines {
 public:
  Lines(const File& file, char delimiter)
      : path_(file.path),
        rest_(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()),
        delimiter_(delimiter),
        blanks_(delimiter == '\t'  ? " "
                : delimiter == ' ' ? "\t"
                                   : " \t") {
    // The last line before the damage could look complete although it is not.
    if (!file.damage.empty()) rest_ = rest_.substr(0, rest_.rfind('\n') + 1);
    rest_ = without_byte_order_mark(rest_);
  }

  // Reads the next line that is not blank. Returns false at the end. Throws DataError if its quotes
  // do not match; the next call then continues with the following line.
  bool next() {
    while (!rest_.empty()) {
      const size_t end = std::min(rest_.find('\n'), rest_.size());
      std::string_view line = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      ++number_;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (trimmed(line, blanks_).empty()) continue;
      split(line);
      return true;
    }
    return false;
  }
  const std::vector<std::string_view>& fields() const { return fields_; }
  // Returns the fields with doubled quotes resolved.
  std::vector<std::string> texts() const {
    std::vector<std::string> all;
    for (size_t i = 0; i < fields_.size(); ++i) {
      all.push_back(quoted_[i] ? without_doubled_quotes(fields_[i]) : std::string(fields_[i]));
    }
    return all;
  }
  int64_t number() const { return number_; }

 private:
  void split(std::string_view line) {
    fields_.clear();
    quoted_.clear();
    for (size_t at = 0;;) {
      const size_t first = line.find_first_not_of(blanks_, at);
      const bool quoted =
          first != std::string_view::npos && line[first] == '"' && delimiter_ != '"';
      const size_t close = quoted ? closing_quote(line, first) : 0;
      const size_t end = std::min(line.find(delimiter_, quoted ? close + 1 : at), line.size());
      if (std::ssize(fields_) == kMaxColumns) {
        throw DataError(place(path_, number_, fields_.size(), {}),
                        fmt::format("has more than {} columns", kMaxColumns));
      }
      quoted_.push_back(quoted);
      if (!quoted) {
        fields_.push_back(trimmed(line.substr(at, end - at), blanks_));
      } else if (trimmed(line.substr(close + 1, end - close - 1), blanks_).empty()) {
        fields_.push_back(line.substr(first + 1, close - first - 1));
      } else {
        throw DataError(place(path_, number_, fields_.size(), {}),
                        "has text after its closing quote");
      }
      if (end == line.size()) return;
      at = end + 1;
    }
  }

  size_t closing_quote(std::string_view line, size_t open) const {
    size_t close = line.find('"', open + 1);
    while (close != std::string_view::npos && close + 1 < line.size() && line[close + 1] == '"') {
      close = line.find('"', close + 2);
    }
    if (close == std::string_view::npos) {
      throw DataError(place(path_, number_, fields_.size(), {}),
                      "has an opening quote but no closing quote");
    }
    return close;
  }

  const std::string& path_;
  std::string_view rest_;
  char delimiter_;
  const char* blanks_;  // characters that are trimmed from fields, except the delimiter
  int64_t number_ = 0;  // line number, from 1
  std::vector<std::string_view> fields_;
  std::vector<bool> quoted_;  // for each field
};

// Returns whether the fields are 0, 1, 2, ..., at least three of them.
bool counts_up(const std::vector<std::string_view>& fields) {
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i] != std::to_string(i)) return false;
  }
  return fields.size() >= 3;
}

bool is_header(const std::vector<std::string_view>& fields, CsvConfig::Header header) {
  if (header != CsvConfig::AUTO) return header == CsvConfig::PRESENT;
  double ignored = 0;
  return std::none_of(fields.begin(), fields.end(),
                      [&](std::string_view field) { return parse(field, ignored); });
}

class TableReader {
 public:
  TableReader(const File& file, char delimiter, CsvConfig::Header header, BadRecordPolicy& policy,
              std::span<const int64_t> only = {})
      : file_(file), policy_(policy), lines_(file, delimiter), header_(header), only_(only) {
    table_.path = file.path;
  }

  Table head() {
    if (!lines_.next()) throw DataError(table_.path, "has no rows");
    table_.columns = static_cast<int64_t>(lines_.fields().size());
    if (header_ == CsvConfig::AUTO && counts_up(lines_.fields())) {
      throw DataError(fmt::format("{}: line {}", table_.path, lines_.number()),
                      "is 0, 1, 2, ..., as pandas names columns; set data.csv.header to PRESENT if "
                      "it is a header, or to ABSENT if it is a row");
    }
    if (is_header(lines_.fields(), header_)) {
      table_.names = lines_.texts();
      check_names();
    }
    return table_;
  }

  Table run() {
    if (head().names.empty()) try_record([&] { add_row(); });
    bool more = true;
    while (more) {
      try_record([&] {
        more = lines_.next();
        if (more) add_row();
      });
      check_fits();
    }
    if (!file_.damage.empty()) {
      policy_.add(DataError(fmt::format("{}: line {}", table_.path, lines_.number() + 1),
                            "cannot be read: " + file_.damage));
    }
    if (!table_.lines.empty()) return std::move(table_);
    policy_.check(table_.path);
    throw DataError(table_.path, policy_.found().count > 0 ? "has no good rows; the first error: " +
                                                                 policy_.found().first[0]
                                                           : "has a header but no rows");
  }

 private:
  void check_names() const {
    const auto nameless = std::ranges::find(table_.names, "");
    if (nameless == table_.names.end()) return;
    throw DataError(place(table_.path, lines_.number(), nameless - table_.names.begin(), {}),
                    "has no name; if it is the index of pandas, remove it "
                    "(to_csv(path, index=False)), since it would be a feature");
  }

  // Reads a record, and passes an error to the policy.
  template <class Read>
  void try_record(Read read) {
    try {
      read();
    } catch (const DataError& error) {
      policy_.add(error);
      policy_.check(table_.path);
    }
    ++record_;
  }

  void add_row() {
    const auto found = static_cast<int64_t>(lines_.fields().size());
    if (found != table_.columns) {
      throw DataError(
          fmt::format("{}: line {}", table_.path, lines_.number()),
          fmt::format("has {} column(s); the lines before have {}", found, table_.columns));
    }
    row_.clear();
    for (size_t column = 0; column < lines_.fields().size(); ++column) {
      row_.push_back(is_read(column) ? number(column, lines_.fields()[column]) : 0);
    }
    table_.values.insert(table_.values.end(), row_.begin(), row_.end());
    table_.lines.push_back(lines_.number());
    table_.records.push_back(record_);
  }

  void check_fits() const {
    const size_t bytes = table_.values.size() * sizeof(float) +
                         table_.lines.size() * (sizeof table_.lines[0] + sizeof table_.records[0]);
    if (bytes <= most_bytes_) return;
    throw DataError(
        table_.path,
        fmt::format("has {}, and as a table takes more than {}, a quarter of the available memory; "
                    "convert it to .npy, which is not read as a whole",
                    format_bytes(static_cast<double>(file_.bytes.size())),
                    format_bytes(static_cast<double>(most_bytes_))));
  }

  bool is_read(size_t column) const {
    return only_.empty() || std::ranges::find(only_, static_cast<int64_t>(column)) != only_.end();
  }

  float number(size_t column, std::string_view field) const {
    double value = 0;
    std::string problem;
    if (field.empty() || !parse(field, value)) {
      problem = field.empty() ? "is empty; expected a number"
                              : fmt::format("'{}' is not a number", field);
      if (table_.columns == 1 && field.find_first_of(",;\t") != field.npos) {
        problem += "; data.csv.delimiter sets the separator of columns";
      }
      if (table_.lines.empty() && table_.names.empty() && header_ == CsvConfig::AUTO) {
        problem +=
            "; this line contains numbers, so it is not treated as a header; if it is one, set "
            "data.csv.header: PRESENT";
      }
    } else if (!std::isfinite(value)) {
      problem = fmt::format("'{}' is not a finite number", field);
    } else if (std::abs(value) > std::numeric_limits<float>::max()) {
      problem = fmt::format("'{}' is out of the range of 32-bit floating point", field);
    }
    if (problem.empty()) return static_cast<float>(value);
    throw DataError(place(table_.path, lines_.number(), column, table_.names), problem);
  }

  const File& file_;
  BadRecordPolicy& policy_;
  Lines lines_;
  CsvConfig::Header header_;
  std::span<const int64_t> only_;
  const size_t most_bytes_ = static_cast<size_t>(process_memory_limit()) / 4;
  int64_t record_ = 0;
  Table table_;
  std::vector<float> row_;
};

}  // namespace

std::string Table::where(int64_t row, int64_t column) const {
  return place(path, lines[row], column, names);
}

Table read_table(const File& file, char delimiter, CsvConfig::Header header,
                 BadRecordPolicy& policy, std::span<const int64_t> only) {
  return TableReader(file, delimiter, header, policy, only).run();
}

Table read_head(const File& file, char delimiter, CsvConfig::Header header) {
  BadRecordPolicy none(0);
  return TableReader(file, delimiter, header, none).head();
}

void keep_rows(Table& table, const std::vector<bool>& keep) {
  size_t to = 0;
  const size_t columns = table.columns;
  for (size_t row = 0; row < keep.size(); ++row) {
    if (!keep[row]) continue;
    for (size_t i = 0; i < columns; ++i) {
      table.values[to * columns + i] = table.values[row * columns + i];
    }
    table.records[to] = table.records[row];
    table.lines[to++] = table.lines[row];
  }
  table.values.resize(to * columns);
  table.lines.resize(to);
  table.records.resize(to);
}

}  // namespace trireme::data
