#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/parse_number.h"
#include "core/text.h"
#include "data/files/file.h"
#include "data/formats/csv_reader.h"
#include "data/formats/formats.h"

namespace trireme::data {
namespace {

constexpr const char* kTab = "\\t";  // as typed behind --set, where nothing is unescaped

char delimiter_of(const CsvConfig& csv) {
  return csv.delimiter() == kTab ? '\t' : csv.delimiter()[0];
}

void check_csv(const DataConfig& config, Part part) {
  const CsvConfig& csv = config.csv();
  if (csv.train_file().empty()) throw ConfigError("data.csv.train_file", "is missing");
  if (csv.has_eval_file() && config.has_holdout()) {
    throw ConfigError("data.csv.eval_file",
                      "cannot be combined with data.holdout, which replaces it");
  }
  if (part == Part::kEvaluation && csv.eval_file().empty()) {
    throw ConfigError("data.csv.eval_file",
                      "is missing; set it, or set data.holdout: 0.2 to hold out a part of "
                      "data.csv.train_file");
  }
  if (csv.delimiter() != kTab && (csv.delimiter().size() != 1 || csv.delimiter() == "\n")) {
    throw ConfigError("data.csv.delimiter",
                      fmt::format("'{}' is not a single character", csv.delimiter()));
  }
  if (csv.has_classes() && csv.regression()) {
    throw ConfigError("data.csv.classes", "cannot be combined with data.csv.regression");
  }
  if (csv.label_size() > 1 && !csv.regression()) {
    throw ConfigError("data.csv.label",
                      "names several columns, which only data.csv.regression: true supports");
  }
  if (!(csv.scale() != 0 && std::isfinite(csv.scale()))) {
    throw ConfigError("data.csv.scale",
                      fmt::format("is {}; it must be finite and not 0", csv.scale()));
  }
}

Table read(const DataConfig& config, const std::string& name, BadRecordPolicy& policy) {
  const CsvConfig& csv = config.csv();
  const std::string path = find_file(config.root(), std::vector<std::string>{name});
  Table table = read_table(read_for(policy, path), delimiter_of(csv), csv.header(), policy);
  if (table.columns < 2) {
    throw DataError(
        path,
        fmt::format("has a single column, but features and a label are needed; is '{}' the right "
                    "data.csv.delimiter?",
                    csv.delimiter()));
  }
  return table;
}

int64_t find_column(const Table& table, const std::string& label) {
  const auto name = std::find(table.names.begin(), table.names.end(), label);
  if (name != table.names.end()) return name - table.names.begin();
  if (label == "last") return table.columns - 1;
  const int64_t index = parse_number<int64_t>(label).value_or(-1);
  if (index >= 0 && index < table.columns) return index;
  const std::string columns = table.names.empty()
                                  ? fmt::format("columns 0 to {} and no header", table.columns - 1)
                                  : fmt::format("columns {}", fmt::join(table.names, ", "));
  throw ConfigError("data.csv.label",
                    fmt::format("there is no column '{}'{}; {} has {}", label,
                                did_you_mean(label, table.names), table.path, columns));
}

// Throws ConfigError if the last column of a table, which is the label by default, does not seem to
// be it.
void check_last_is_label(const Table& table) {
  for (size_t i = 0; i + 1 < table.names.size(); ++i) {
    const std::string name = upper(table.names[i]);
    if (name != "LABEL" && name != "TARGET" && name != "CLASS") continue;
    throw ConfigError(
        "data.csv.label",
        fmt::format("is not set, so that the last column of {}, '{}', would be the label; set it "
                    "to '{}', or to '{}' if that is right",
                    table.path, table.names.back(), table.names[i], table.names.back()));
  }
}

// Returns the label columns, given the training table or one with the same columns.
std::vector<int64_t> label_columns(const Table& table, const CsvConfig& csv) {
  if (csv.label().empty()) {
    check_last_is_label(table);
    return {table.columns - 1};
  }
  std::vector<int64_t> columns;
  for (const std::string& label : csv.label()) {
    const int64_t column = find_column(table, label);
    if (std::find(columns.begin(), columns.end(), column) != columns.end()) {
      throw ConfigError("data.csv.label", fmt::format("names column {} twice", column));
    }
    columns.push_back(column);
  }
  return columns;
}

TableColumns columns_of(const Table& table, const CsvConfig& csv) {
  return {table.names, table.columns, label_columns(table, csv)};
}

// Returns the columns of the training file without reading its rows.
TableColumns training_columns(const DataConfig& config) {
  const CsvConfig& csv = config.csv();
  const std::string path = find_file(config.root(), std::vector<std::string>{csv.train_file()});
  const File file = read_file(path, OnDamage::kReadUpToDamage);
  return columns_of(read_head(file, delimiter_of(csv), csv.header()), csv);
}

// Returns why a label is invalid, or "" if it is valid. `classes` is 0 if it is not known yet.
std::string label_problem(float value, int classes, int64_t rows) {
  if (value != std::floor(value)) {
    return fmt::format("label {} is not an integer; for regression, set data.csv.regression: true",
                       value);
  }
  if (value < 0) return fmt::format("label {} is negative", value);
  if (classes == 0 && value >= static_cast<float>(std::max<int64_t>(rows, 2))) {
    return fmt::format(
        "label {} implies more classes than the {} samples; if it is correct, set "
        "data.csv.classes, or data.csv.regression: true for regression",
        value, rows);
  }
  if (classes > 0 && value >= static_cast<float>(classes)) {
    return fmt::format("label {} is not in [0, {})", value, classes);
  }
  return {};
}

// Removes the rows with invalid labels.
void check_labels(Table& table, int64_t column, int classes, BadRecordPolicy& policy) {
  std::vector<bool> keep(table.rows());
  for (int64_t row = 0; row < table.rows(); ++row) {
    const std::string problem = label_problem(table.at(row, column), classes, table.rows());
    keep[row] = problem.empty();
    if (!problem.empty()) policy.add(DataError(table.where(row, column), problem));
  }
  keep_rows(table, keep);
}

// Returns the number of classes of a table whose labels were checked.
int count_classes(const Table& table, int64_t column) {
  float largest = 1;
  for (int64_t row = 0; row < table.rows(); ++row) {
    largest = std::max(largest, table.at(row, column));
  }
  return static_cast<int>(largest) + 1;
}

// Returns the number of classes of the training file.
int count_classes(const DataConfig& config) {
  BadRecordPolicy policy(bad_record_limit(config));  // opening the training part reports them
  Table table = read(config, config.csv().train_file(), policy);
  const int64_t column = label_columns(table, config.csv())[0];
  check_labels(table, column, 0, policy);
  return count_classes(table, column);
}

std::vector<uint8_t> read_labels(const Table& table, int64_t column) {
  std::vector<int32_t> labels(table.rows());
  for (int64_t row = 0; row < table.rows(); ++row) {
    labels[row] = static_cast<int32_t>(table.at(row, column));
  }
  return label_bytes(labels);
}

// Returns the values of the columns in row-major order.
std::vector<uint8_t> gather(const Table& table, const std::vector<int64_t>& columns) {
  std::vector<uint8_t> bytes(table.rows() * columns.size() * sizeof(float));
  uint8_t* to = bytes.data();
  for (int64_t row = 0; row < table.rows(); ++row) {
    for (const int64_t column : columns) {
      const float value = table.at(row, column);
      std::memcpy(to, &value, sizeof value);
      to += sizeof value;
    }
  }
  return bytes;
}

Shape feature_shape(const Table& table, int64_t features, const CsvConfig& csv) {
  if (csv.shape().empty()) return {features};
  const Shape shape = checked_shape(csv.shape(), "data.csv.shape");
  if (shape.elements() != features) {
    throw ConfigError("data.csv.shape",
                      fmt::format("{} has {} elements, but {} has {} features besides the label",
                                  shape.to_string(), shape.elements(), table.path, features));
  }
  return shape;
}

}  // namespace

Samples read_csv(const DataConfig& config, Part part, const TableColumns& trained) {
  check_csv(config, part);
  const CsvConfig& csv = config.csv();
  int classes = csv.has_classes() ? checked_classes(csv.classes(), "data.csv.classes") : 0;
  const bool training = part == Part::kTraining;
  BadRecordPolicy policy(bad_record_limit(config));
  Table table = read(config, training ? csv.train_file() : csv.eval_file(), policy);
  Samples samples;
  samples.columns = trained.count > 0 ? trained
                    : training        ? columns_of(table, csv)
                                      : training_columns(config);
  const auto [features, labels] =
      match_columns(samples.columns, table.names, table.columns, table.path, Labels::kRequired);
  if (features.empty()) throw ConfigError("data.csv.label", "leaves no columns for the features");
  if (!csv.regression()) {
    if (classes == 0 && !training) classes = count_classes(config);
    check_labels(table, labels[0], classes, policy);
    if (classes == 0) classes = count_classes(table, labels[0]);
  }
  samples.spec.input = {DType::kF32,
                        feature_shape(table, static_cast<int64_t>(features.size()), csv),
                        Layout::row_major()};
  samples.spec.target =
      csv.regression()
          ? TensorSpec{DType::kF32, Shape{static_cast<int64_t>(labels.size())}, Layout::row_major()}
          : label_spec();
  samples.spec.classes = classes;
  samples.spec.scale = csv.scale();
  samples.count = table.rows();
  samples.inputs = gather(table, features);
  samples.targets = csv.regression() ? gather(table, labels) : read_labels(table, labels[0]);
  samples.source = "CSV " + table.path;
  if (const auto names = samples.columns.label_names(); !names.empty()) {
    constexpr size_t kMaxShown = 100;
    samples.source += printable(fmt::format(" (label '{}')", fmt::join(names, "', '")), kMaxShown);
  }
  finalize(policy, samples);
  return samples;
}

Features read_csv_features(const DataConfig& config, const std::string& path,
                           const TensorSpec& input, const TableColumns& trained,
                           BadRecordPolicy& policy) {
  const CsvConfig& csv = config.csv();
  const File file = read_for(policy, path);
  const Table head = read_head(file, delimiter_of(csv), csv.header());
  TableColumns wanted = trained;
  if (wanted.count == 0) {
    wanted = {head.names, head.columns, {}};
    if (head.columns != input.shape.elements()) wanted = columns_of(head, csv);
  }
  const auto features =
      match_columns(wanted, head.names, head.columns, path, Labels::kOptional).features;
  if (input.dtype != DType::kF32 || std::ssize(features) != input.shape.elements()) {
    throw DataError(path, fmt::format("has {} columns, but the network's input is {}", head.columns,
                                      input.to_string()));
  }
  Table table = read_table(file, delimiter_of(csv), csv.header(), policy, features);
  return {gather(table, features), std::move(table.records)};
}

}  // namespace trireme::data
