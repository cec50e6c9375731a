#include "data/formats/labeled_records.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "data/files/file.h"
#include "data/files/lines.h"
#include "data/formats/formats.h"
#include "data/tokenizers/tokenizer.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWhiteSpace = " \t\n\v\f\r";

// Receives the records of files, and reports the bad ones.
class RecordReader {
 public:
  RecordReader(const LabeledColumns& columns, BadRecordPolicy& policy,
               const std::function<void(LabeledRecord)>& add)
      : columns_(columns), policy_(policy), add_(add) {}

  void read(const std::string& path);

 private:
  struct Row {
    std::vector<std::string> fields;
    int64_t line = 0;     // of its first character
    std::string problem;  // empty if it is well-formed
  };

  std::string read_bytes(const std::string& path) { return text_of(read_for(policy_, path)); }
  std::string text_of(const File& file);
  void read_table(const std::string& path, char delimiter);
  void read_objects(const std::string& path);
  void read_classes(const std::string& folder);
  // Returns false if the folder has no texts.
  bool read_files(const std::string& folder, const std::string& label);
  void add_row(const Row& row, const std::string& path, size_t columns, size_t text,
               std::optional<size_t> label);
  void add_object(std::string_view line, const std::string& where);
  void add_file(const std::string& path, const std::string& label);
  void bad(const std::string& where, const std::string& problem) {
    policy_.add(DataError(where, problem));
    policy_.check(where);
  }
  // Checks and adds a record.
  void add(LabeledRecord record);

  const LabeledColumns& columns_;
  BadRecordPolicy& policy_;
  const std::function<void(LabeledRecord)>& add_;
};

constexpr const char* kQuotesHint =
    "; if quotes have no meaning in this table, set data.labeled_text.quoted_fields: false";

// Splits the rows of a table. If its fields may be quoted, those can have delimiters and line
// breaks, and "" stands for a quote.
class RowSplitter {
 public:
  RowSplitter(std::string_view text, char delimiter, Quotes quotes)
      : text_(text), delimiter_(delimiter), quotes_(quotes) {}

  bool at_end() const { return at_ >= text_.size(); }
  int64_t line() const { return line_; }
  // Sets the fields of the next row. Returns a description of what is wrong with it, if anything.
  std::string next(std::vector<std::string>& fields) {
    fields.assign(1, "");
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (quotes_ != Quotes::kLiteral && c == '"' && fields.back().empty()) {
        const std::string problem = quoted(fields.back());
        if (!problem.empty()) return problem + kQuotesHint;
        if (at_ >= text_.size()) break;
      }
      if (text_[at_] == delimiter_) {
        if (std::ssize(fields) == kMaxColumns) {
          skip_line(at_);
          return fmt::format("has more than {} columns", kMaxColumns);
        }
        fields.emplace_back();
      } else if (text_[at_] == '\n') {
        ++at_;
        ++line_;
        break;
      } else {
        fields.back() += text_[at_];
      }
    }
    if (fields.back().ends_with('\r')) fields.back().pop_back();
    return "";
  }

 private:
  // Goes behind the line that has this character.
  void skip_line(size_t at) {
    ++line_;
    at_ = std::min(text_.find('\n', at), text_.size() - 1) + 1;
  }

  bool ends_field(std::string_view rest) const {
    return rest.empty() || rest[0] == delimiter_ || rest[0] == '\n' || rest == "\r\n" ||
           rest == "\r";
  }

  // Whether quotes seem to enclose the end of one row and the start of another. Quoted texts have
  // commas and line breaks, but tabs and line breaks rarely.
  bool joins_rows(std::string_view field) const {
    return quotes_ == Quotes::kLikely && delimiter_ == '\t' && field.find('\n') != field.npos &&
           field.find('\t') != field.npos;
  }

  // Reads a quoted field, after which at_ is behind its last quote. Returns a description of what
  // is wrong with it, if anything; then at_ is behind the line in which it begins, so that a quote
  // in the wrong place does not hide the rows up to the next one.
  std::string quoted(std::string& field) {
    const int64_t first = line_;
    const size_t begin = at_;
    std::string problem = "has a quote (\") that is not closed";
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] != '"') {
        field += text_[at_];
      } else if (text_.substr(at_ + 1, 1) == "\"") {
        field += text_[++at_];
      } else {
        ++at_;
        if (!ends_field(text_.substr(at_, 2))) {
          problem = "has text after a closing quote (\"); quotes within quotes are doubled (\"\")";
        } else if (joins_rows(field)) {
          problem =
              "has a quote (\") that is closed in another row; if the field is right, set "
              "data.labeled_text.quoted_fields: true";
        } else {
          return "";
        }
        break;
      }
    }
    line_ = first;
    skip_line(begin);
    return problem;
  }

  std::string_view text_;
  char delimiter_;
  Quotes quotes_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

// Ignores case and a ".gz" behind the ending.
bool ends_with_any(const std::string& path, std::initializer_list<const char*> endings) {
  const std::string all = upper(path);
  std::string_view name = all;
  if (name.ends_with(".GZ")) name.remove_suffix(3);
  return std::ranges::any_of(endings, [&](const char* end) { return name.ends_with(upper(end)); });
}

// A link that cannot be followed is a file, which then cannot be read.
bool is_folder(const fs::path& path) {
  std::error_code none;
  return fs::is_directory(path, none);
}

// Returns the entries of a folder, except hidden ones, sorted by name.
std::vector<fs::path> entries_of(const std::string& folder) {
  std::vector<fs::path> entries;
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (!entry.path().filename().string().starts_with('.')) entries.push_back(entry.path());
    }
  } catch (const fs::filesystem_error& error) {
    throw DataError(folder, "cannot be read: " + error.code().message());
  }
  std::ranges::sort(entries);
  return entries;
}

void RecordReader::read(const std::string& path) {
  if (fs::is_directory(path)) {
    read_classes(path);
  } else if (ends_with_any(path, {".csv"})) {
    read_table(path, ',');
  } else if (ends_with_any(path, {".tsv"})) {
    read_table(path, '\t');
  } else if (ends_with_any(path, {".jsonl", ".json"})) {
    read_objects(path);
  } else if (!columns_.requires_label) {
    add_file(path, "");
  } else {
    throw DataError(path, "is not *.csv, *.tsv, *.jsonl or a folder with a subfolder per class");
  }
}

void RecordReader::add(LabeledRecord record) {
  for (const auto& [name, value] : {std::pair{"text", record.text}, {"label", record.label}}) {
    try {
      check_utf8(value);
    } catch (const Error& error) {
      return bad(record.where, fmt::format("the {} {}", name, error.what()));
    }
  }
  if (trimmed(record.text, kWhiteSpace).empty()) return bad(record.where, "the text is empty");
  if (columns_.requires_label && record.label.empty()) {
    return bad(record.where, "the label is empty");
  }
  add_(std::move(record));
}

std::string RecordReader::text_of(const File& file) {
  if (!file.damage.empty()) bad(file.path, file.damage);
  return std::string(without_byte_order_mark(
      {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()}));
}

// Returns the index of a column. Throws DataError if there is none or several, unless `optional`.
std::optional<size_t> find_column(const std::vector<std::string>& names, const std::string& name,
                                  const std::string& path, const char* field, bool optional) {
  const auto count = std::ranges::count(names, name);
  if (count == 1) return std::ranges::find(names, name) - names.begin();
  if (count == 0 && optional) return std::nullopt;
  throw DataError(
      path, fmt::format("has {} column '{}'; its columns are: {}. Set data.labeled_text."
                        "{} to the name of one",
                        count == 0 ? "no" : "more than one", name, fmt::join(names, ", "), field));
}

void RecordReader::read_table(const std::string& path, char delimiter) {
  const std::string bytes = read_bytes(path);
  RowSplitter rows(bytes, delimiter, columns_.quotes);
  std::vector<std::string> names;
  if (rows.at_end()) throw DataError(path, "is empty; its first line must name the columns");
  if (std::string problem = rows.next(names); !problem.empty()) {
    throw DataError(path + ": line 1", problem);
  }
  const size_t text = *find_column(names, columns_.text, path, "text_column", false);
  const auto label =
      find_column(names, columns_.label, path, "label_column", !columns_.requires_label);
  while (!rows.at_end()) {
    Row row;
    row.line = rows.line();
    row.problem = rows.next(row.fields);
    add_row(row, path, names.size(), text, label);
  }
}

void RecordReader::add_row(const Row& row, const std::string& path, size_t columns, size_t text,
                           std::optional<size_t> label) {
  const std::string where = fmt::format("{}: line {}", path, row.line);
  if (!row.problem.empty()) return bad(where, row.problem);
  if (row.fields.size() == 1 && row.fields[0].empty()) return bad(where, "is empty");
  if (row.fields.size() != columns) {
    return bad(where, fmt::format("has {} fields instead of {}", row.fields.size(), columns));
  }
  add({where, row.fields[text], label ? row.fields[*label] : ""});
}

void RecordReader::read_objects(const std::string& path) {
  const std::string bytes = read_bytes(path);
  for_each_line(bytes, [&](std::string_view line, int64_t number) {
    add_object(line, fmt::format("{}: line {}", path, number));
  });
}

// Returns a label of JSON as text, or nullopt if it is none.
std::optional<std::string> label_of(const nlohmann::json& value) {
  if (value.is_string()) return value;
  if (value.is_number_integer() || value.is_boolean()) return value.dump();
  return std::nullopt;
}

void RecordReader::add_object(std::string_view line, const std::string& where) {
  if (trimmed(line, kWhiteSpace).empty()) return bad(where, "is empty");
  try {
    check_utf8(line);
  } catch (const Error& error) {
    return bad(where, error.what());
  }
  const nlohmann::json object = parse_json_fields(line, {columns_.text, columns_.label});
  if (object.is_discarded()) return bad(where, "is not valid JSON");
  if (!object.is_object()) {
    return bad(where, fmt::format("is not a JSON object but of type {}", object.type_name()));
  }
  const auto text = object.find(columns_.text), label = object.find(columns_.label);
  if (text == object.end()) return bad(where, fmt::format("has no text '{}'", columns_.text));
  if (!text->is_string()) {
    return bad(where, fmt::format("the text '{}' is not a string but of type {}", columns_.text,
                                  text->type_name()));
  }
  std::string name;
  if (label != object.end()) {
    const std::optional<std::string> found = label_of(*label);
    if (!found && columns_.requires_label) {
      return bad(where, fmt::format("the label '{}' is not a string, an integer or a boolean but "
                                    "of type {}",
                                    columns_.label, label->type_name()));
    }
    name = found.value_or("");
  } else if (columns_.requires_label) {
    return bad(where, fmt::format("has no label '{}'", columns_.label));
  }
  add({where, *text, name});
}

void RecordReader::read_classes(const std::string& folder) {
  bool has_class = false;
  for (const fs::path& entry : entries_of(folder)) {
    if (!is_folder(entry)) continue;
    has_class = true;
    const std::string name = entry.filename().string();
    if (!read_files(entry.string(), name) && columns_.requires_label) {
      bad(entry.string(), fmt::format("class '{}' has no texts (.txt)", name));
    }
  }
  if (!columns_.requires_label) {
    for (const fs::path& entry : entries_of(folder)) {
      if (!is_folder(entry) && ends_with_any(entry.string(), {".txt"})) {
        add_file(entry.string(), "");
      }
    }
  } else if (!has_class) {
    throw DataError(folder, "has no subfolders; it needs one for each class");
  }
}

bool RecordReader::read_files(const std::string& folder, const std::string& label) {
  bool found = false;
  for (const fs::path& entry : entries_of(folder)) {
    if (!is_folder(entry) && ends_with_any(entry.string(), {".txt"})) {
      add_file(entry.string(), label);
      found = true;
    }
  }
  return found;
}

void RecordReader::add_file(const std::string& path, const std::string& label) {
  File file;
  try {
    file = read_for(policy_, path);
  } catch (const DataError& error) {  // such as a link to a file that does not exist
    policy_.add(error);
    return policy_.check(path);
  }
  add({path, text_of(file), label});
}

}  // namespace

void read_labeled_records(const std::string& path, const LabeledColumns& columns,
                          BadRecordPolicy& policy, const std::function<void(LabeledRecord)>& add) {
  RecordReader(columns, policy, add).read(path);
}

}  // namespace trireme::data
