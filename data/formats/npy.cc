#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "core/error.h"
#include "data/files/file.h"
#include "data/files/mapped_file.h"
#include "data/formats/formats.h"
#include "data/formats/npy_array.h"

namespace trireme::data {
namespace {

void check_npy(const DataConfig& config, Part part) {
  const NpyConfig& npy = config.npy();
  const auto require = [&](const std::string& name, const char* field) {
    if (!name.empty()) return;
    throw ConfigError(std::string("data.npy.") + field,
                      part == Part::kTraining
                          ? "is missing"
                          : "is missing; set it, or set data.holdout: 0.2 to hold out a part of "
                            "the training files");
  };
  if (config.has_holdout() && (npy.has_eval_inputs() || npy.has_eval_targets())) {
    throw ConfigError("data.npy.eval_inputs",
                      "cannot be combined with data.holdout, which replaces it");
  }
  if (part == Part::kEvaluation) {
    require(npy.eval_inputs(), "eval_inputs");
    require(npy.eval_targets(), "eval_targets");
  } else {
    require(npy.train_inputs(), "train_inputs");
  }
  if (part == Part::kTraining || !npy.has_classes()) require(npy.train_targets(), "train_targets");
  if (!(npy.scale() != 0 && std::isfinite(npy.scale()))) {
    throw ConfigError("data.npy.scale",
                      fmt::format("is {}; it must be finite and not 0", npy.scale()));
  }
}

// A memory-mapped .npy file.
struct ArrayFile {
  ArrayFile(const DataConfig& config, const std::string& name, const BadRecordPolicy& policy)
      : file(find_file(config.root(), std::vector<std::string>{name})),
        array(parse_npy(file.bytes(), file.path())) {
    if (array.shape.empty() || array.rows() == 0 || array.row_elements() == 0) {
      throw DataError(path(), fmt::format("has no samples: it is {}", array.describe()));
    }
    if (!array.complete() && !policy.skips()) throw truncation();
  }

  const std::string& path() const { return file.path(); }
  DataError truncation() const {
    return {fmt::format("{}: record {}", path(), array.complete_rows()),
            describe_truncation(array)};
  }
  size_t row_bytes() const { return array.row_elements() * size_of(array.dtype); }
  const uint8_t* row(int64_t index) const { return array.elements.data() + index * row_bytes(); }

  MappedFile file;
  NpyArray array;
};

bool is_float(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }

// Returns how many records have both an input and a target. The others are bad. Throws DataError if
// the files do not belong together: a missing record may be anywhere.
int64_t count_npy_pairs(const ArrayFile& inputs, const ArrayFile& targets,
                        BadRecordPolicy& policy) {
  const int64_t all = inputs.array.rows();
  if (targets.array.rows() != all) {
    throw DataError(targets.path(), fmt::format("has {} targets, but {} has {} inputs",
                                                targets.array.rows(), inputs.path(), all));
  }
  const int64_t pairs = std::min(inputs.array.complete_rows(), targets.array.complete_rows());
  if (pairs == all) return pairs;
  const bool inputs_end_first = inputs.array.complete_rows() == pairs;
  policy.add((inputs_end_first ? inputs : targets).truncation(), all - pairs);
  return pairs;
}

// Returns why a label is invalid, or "" if it is valid. `classes` is 0 if it is not known yet.
// `count` is the number of labels in the file.
std::string npy_label_problem(int64_t label, int classes, int64_t count) {
  if (label < 0) return fmt::format("label {} is negative", label);
  if (classes == 0 && label >= std::clamp<int64_t>(count, 2, kMaxClasses)) {
    return fmt::format(
        "label {} implies more classes than the {} samples; if it is correct, set data.npy.classes",
        label, count);
  }
  if (classes > 0 && label >= classes) {
    return fmt::format("label {} is not in [0, {})", label, classes);
  }
  return {};
}

// The targets of the good records.
struct Targets {
  TensorSpec spec;
  int classes = 0;
  std::vector<uint8_t> bytes;
  std::vector<int64_t> rows;  // record number of each target
};

DataError bad_row(const ArrayFile& file, int64_t row, const std::string& what) {
  return {fmt::format("{}: record {}", file.path(), row), what};
}

// If `classes` is 0, the labels determine the number of classes.
Targets read_labels(const ArrayFile& file, int64_t count, int classes, BadRecordPolicy& policy) {
  if (file.array.shape.size() != 1) {
    throw DataError(file.path(), fmt::format("is {}; labels must be [N]", file.array.describe()));
  }
  std::vector<int32_t> labels;
  Targets targets{.spec = label_spec(), .classes = std::max(classes, 2), .bytes = {}, .rows = {}};
  for (int64_t row = 0; row < count; ++row) {
    const int64_t label = to_integer(file.array.dtype, file.row(row));
    if (const std::string problem = npy_label_problem(label, classes, file.array.complete_rows());
        !problem.empty()) {
      policy.add(bad_row(file, row, problem));
      continue;
    }
    labels.push_back(static_cast<int32_t>(label));
    targets.rows.push_back(row);
    targets.classes = std::max(targets.classes, static_cast<int>(label) + 1);
  }
  targets.bytes = label_bytes(labels);
  return targets;
}

Targets read_numbers(const ArrayFile& file, int64_t count, BadRecordPolicy& policy) {
  if (file.array.shape.size() > 2) {
    throw DataError(file.path(), fmt::format("is {}; regression targets must be [N] or [N, F]",
                                             file.array.describe()));
  }
  const size_t width = file.array.row_elements();
  std::vector<float> row(count > 0 ? width
                                   : 0);  // without records, `width` may be arbitrarily large
  Targets targets{.spec = {DType::kF32, Shape{static_cast<int64_t>(width)}, Layout::row_major()},
                  .classes = 0,
                  .bytes = {},
                  .rows = {}};
  const auto finite = [](float value) { return std::isfinite(value); };
  for (int64_t i = 0; i < count; ++i) {
    to_floats(file.array.dtype, file.row(i), row);
    if (const auto bad = std::ranges::find_if_not(row, finite); bad != row.end()) {
      policy.add(bad_row(file, i, fmt::format("target {} is not a finite number", *bad)));
      continue;
    }
    const auto* bytes = reinterpret_cast<const uint8_t*>(row.data());
    targets.bytes.insert(targets.bytes.end(), bytes, bytes + row.size() * sizeof(float));
    targets.rows.push_back(i);
  }
  return targets;
}

// Returns the number of classes of the training file.
int count_npy_classes(const DataConfig& config) {
  BadRecordPolicy policy(bad_record_limit(config));  // opening the training part reports them
  const ArrayFile file(config, config.npy().train_targets(), policy);
  if (is_float(file.array.dtype)) return 0;
  return read_labels(file, file.array.complete_rows(), 0, policy).classes;
}

Targets read_targets(const DataConfig& config, Part part, const ArrayFile& file, int64_t count,
                     BadRecordPolicy& policy) {
  const NpyConfig& npy = config.npy();
  if (is_float(file.array.dtype)) {
    if (!npy.has_classes()) return read_numbers(file, count, policy);
    throw ConfigError("data.npy.classes",
                      fmt::format("needs labels of type u8, i32 or i64, but {} has targets of type "
                                  "{}",
                                  file.path(), name_of(file.array.dtype)));
  }
  int classes = npy.has_classes() ? checked_classes(npy.classes(), "data.npy.classes") : 0;
  if (classes == 0 && part == Part::kEvaluation) classes = count_npy_classes(config);
  return read_labels(file, count, classes, policy);
}

float npy_scale(const ArrayFile& inputs, const NpyConfig& npy) {
  return inputs.array.dtype == DType::kU8 ? 1.0F / 255 : npy.scale();
}

class NpyDataset final : public Dataset {
 public:
  NpyDataset(ArrayFile inputs, Targets targets, SampleSpec spec, std::string source, BadRecords bad)
      : inputs_(std::move(inputs)),
        targets_(std::move(targets)),
        spec_(std::move(spec)),
        source_(std::move(source)),
        bad_(std::move(bad)) {}

  const SampleSpec& spec() const override { return spec_; }
  int64_t size() const override { return std::ssize(targets_.rows); }
  void read(SampleId id, std::byte* input, std::byte* target) const override {
    const size_t index = id.index;
    copy_sample(spec_.input, inputs_.array.dtype, inputs_.row(targets_.rows.at(index)), input);
    if (spec_.input.dtype == DType::kF32) check_finite(id.index, input);
    const size_t bytes = spec_.target.bytes();
    std::memcpy(target, targets_.bytes.data() + index * bytes, bytes);
  }
  std::string description() const override {
    return fmt::format("{}: {}{}", source_, describe(spec_, size()), skipped_note(bad_));
  }
  std::string where(int64_t index) const override {
    return fmt::format("{}: record {}", inputs_.path(), targets_.rows.at(index));
  }
  BadRecords bad_records() const override { return bad_; }
  std::vector<int32_t> labels() const override { return labels_in(spec_, targets_.bytes); }
  Checksums checksums() const override {
    Checksums sums{.targets = checksum_of(targets_.bytes, checksum_of(targets_.rows))};
    const CheckedSamples checked(size(), inputs_.row_bytes());
    for (int64_t i = 0; i < checked.count(); ++i) {
      const std::span row(inputs_.row(targets_.rows[checked[i]]), inputs_.row_bytes());
      sums.inputs = checksum_of(row, sums.inputs);
    }
    return sums;
  }

 private:
  void check_finite(int64_t index, const std::byte* input) const {
    const std::span values(reinterpret_cast<const float*>(input), spec_.input.shape.elements());
    const int64_t bad = first_not_finite(values);
    if (bad < 0) return;
    throw DataError(where(index),
                    fmt::format("value {} is {}, not a finite number", bad, values[bad]));
  }

  const ArrayFile inputs_;
  const Targets targets_;
  const SampleSpec spec_;
  const std::string source_;
  const BadRecords bad_;
};

}  // namespace

NumberFormat npy_number_format(const DataConfig& config) {
  const NpyConfig& npy = config.npy();
  check_npy(config, Part::kTraining);
  const BadRecordPolicy policy(bad_record_limit(config));
  const ArrayFile inputs(config, npy.train_inputs(), policy);
  const ArrayFile targets(config, npy.train_targets(), policy);
  return {.scale = npy_scale(inputs, npy),
          .regression = is_float(targets.array.dtype) && !npy.has_classes()};
}

std::unique_ptr<Dataset> open_npy(const DataConfig& config, Part part) {
  check_npy(config, part);
  const NpyConfig& npy = config.npy();
  const bool training = part == Part::kTraining;
  BadRecordPolicy policy(bad_record_limit(config));
  ArrayFile inputs(config, training ? npy.train_inputs() : npy.eval_inputs(), policy);
  const ArrayFile file(config, training ? npy.train_targets() : npy.eval_targets(), policy);
  SampleSpec spec;
  spec.input = sample_spec(inputs.array, 1, inputs.path());
  if (npy.has_scale() && spec.input.dtype == DType::kU8) {
    throw ConfigError("data.npy.scale",
                      "is only for f32 and f64 inputs; u8 inputs are divided by 255");
  }
  Targets targets = read_targets(config, part, file, count_npy_pairs(inputs, file, policy), policy);
  spec.target = targets.spec;
  spec.classes = targets.classes;
  spec.scale = npy_scale(inputs, npy);
  std::string source = fmt::format("NumPy {}, {}", inputs.path(), file.path());
  policy.check(source);
  policy.check_not_empty(source, std::ssize(targets.rows));
  return std::make_unique<NpyDataset>(std::move(inputs), std::move(targets), std::move(spec),
                                      std::move(source), policy.found());
}

}  // namespace trireme::data
