#include "data/dataset.h"

#include <fmt/format.h>

#include <filesystem>
#include <new>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/installation.h"
#include "core/memory_limit.h"
#include "core/text.h"
#include "data/array_dataset.h"
#include "data/files/file.h"
#include "data/formats/formats.h"
#include "data/image_dataset.h"
#include "data/masked_tokens.h"
#include "data/normalization.h"
#include "data/soft_labels.h"
#include "data/subset.h"

namespace trireme::data {
namespace {

bool decodes(const DataConfig& config) {
  return config.has_image_folder() || config.has_webdataset();
}

void check(const DataConfig& config) {
  if (config.format_case() == DataConfig::FORMAT_NOT_SET) {
    throw ConfigError(
        "data",
        "has no format; set one of data.idx, cifar, csv, image_folder, webdataset, npy, "
        "tokens, text, labeled_text or synthetic");
  }
  if (config.has_holdout()) {
    if (!(config.holdout() > 0 && config.holdout() < 1)) {
      throw ConfigError("data.holdout", fmt::format("{} is not in (0, 1)", config.holdout()));
    }
    if (config.has_synthetic()) {
      throw ConfigError("data.holdout",
                        "synthetic data has evaluation samples of its own; see "
                        "data.synthetic.eval_count");
    }
  }
  if (config.threads() < 0 || config.threads() > 256) {
    throw ConfigError("data.threads", fmt::format("{} is not in [0, 256]", config.threads()));
  }
  if (config.prefetch() < 1 || config.prefetch() > 1024) {
    throw ConfigError("data.prefetch", fmt::format("{} is not in [1, 1024]", config.prefetch()));
  }
  if (config.max_bad_records() < 0) {
    throw ConfigError("data.max_bad_records",
                      fmt::format("{} is less than 0", config.max_bad_records()));
  }
  if ((config.has_decode() || config.has_cache()) && !decodes(config)) {
    throw ConfigError(config.has_decode() ? "data.decode" : "data.cache",
                      "is only for images in files (image_folder and webdataset)");
  }
}

// Formats that decode images apply transforms themselves.
bool transforms(const DataConfig& config) {
  return config.transform_size() > 0 || config.eval_transform_size() > 0;
}

// `part` is the part to open, and `files` selects the format's files. They differ if evaluation
// samples are held out from the training files.
std::unique_ptr<Dataset> open_format(const DataConfig& config, Part part, Part files,
                                     const OpenOptions& options) {
  switch (config.format_case()) {
    case DataConfig::kIdx:
      return make_dataset(read_idx(config, files));
    case DataConfig::kCifar:
      return make_dataset(read_cifar(config, files));
    case DataConfig::kCsv:
      return make_dataset(read_csv(config, files, options.columns));
    case DataConfig::kSynthetic:
      return make_synthetic(config.synthetic(), files, synthetic_spec(config.synthetic()));
    case DataConfig::kNpy:
      return open_npy(config, files);
    case DataConfig::kTokens:
      return open_tokens(config, files, options.seed);
    case DataConfig::kText:
      return open_text(config, part, options.seed);
    case DataConfig::kLabeledText:
      return open_labeled_text(config, part, files, options.seed);
    case DataConfig::kImageFolder:
      return make_image_dataset(open_image_folder(config, files, options), config, part, options);
    case DataConfig::kWebdataset: {
      auto records = open_webdataset(config, files, options);
      if (holds_arrays(*records)) {
        if (transforms(config) || config.has_decode() || config.has_cache()) {
          throw ConfigError(
              "data",
              fmt::format("{} holds arrays; transform, decode and cache are only for images",
                          records->source()));
        }
        return make_array_dataset(std::move(records));
      }
      return make_image_dataset(std::move(records), config, part, options);
    }
    case DataConfig::FORMAT_NOT_SET:
      break;
  }
  throw ConfigError("data", "has no format");  // unreachable: check() has verified it
}

// Returns the configuration with the path of data.root, which may be relative to an installation.
DataConfig located(DataConfig config) {
  if (config.has_root()) config.set_root(find_shared(config.root()));
  return config;
}

// Runs with different seeds are evaluated on the same masks.
constexpr uint64_t kEvaluationMaskSeed = 1;

// Returns the path of the file of a format that has one for all samples and reads it as a whole;
// "" for other formats.
std::string whole_file(const DataConfig& config, Part files) {
  const bool training = files == Part::kTraining || config.has_holdout();
  std::string name;
  if (config.has_csv()) name = training ? config.csv().train_file() : config.csv().eval_file();
  if (config.has_text()) name = training ? config.text().train_file() : config.text().eval_file();
  if (config.has_labeled_text()) {
    name = training ? config.labeled_text().train() : config.labeled_text().eval();
  }
  if (name.empty() || std::filesystem::is_directory(std::filesystem::path(config.root()) / name)) {
    return "";
  }
  return find_file(config.root(), std::vector<std::string>{name});
}

// Calls open_format(). Throws DataError with the sizes of the file and of the memory if the memory
// does not suffice.
std::unique_ptr<Dataset> open_within_memory(const DataConfig& config, Part part, Part files,
                                            const OpenOptions& options) {
  try {
    return open_format(config, part, files, options);
  } catch (const std::bad_alloc&) {
    const std::string file = whole_file(config, files);
    if (!file.empty()) fail_out_of_memory(file, std::filesystem::file_size(file));
    throw DataError(
        config.has_root() ? config.root() : "data",
        fmt::format("opening its {} samples needs more than the {} of memory that this process may "
                    "use; use fewer, or a format that is not read as a whole",
                    part == Part::kTraining ? "training" : "evaluation",
                    format_bytes(static_cast<double>(process_memory_limit()))));
  }
}

// Sets the normalization of another dataset's inputs.
class Normalized final : public WrappedDataset {
 public:
  Normalized(std::unique_ptr<Dataset> dataset, const DataConfig& config)
      : WrappedDataset(std::move(dataset)), spec_(inner().spec()) {
    set_normalization(config, spec_);
  }
  const SampleSpec& spec() const override { return spec_; }

 private:
  SampleSpec spec_;
};

}  // namespace

std::vector<std::string> output_names(const Dataset& dataset) {
  return dataset.spec().classes > 0 ? dataset.class_names() : dataset.columns().label_names();
}

Checksums Dataset::checksums() const {
  Checksums sums;
  for (const std::string& name : class_names()) sums.targets = checksum_of(name, sums.targets);
  std::vector<std::byte> input(spec().input.bytes());
  std::vector<std::byte> target(spec().target.bytes());
  const CheckedSamples checked(size(), input.size() + target.size());
  for (int64_t i = 0; i < checked.count(); ++i) {
    try {
      read({.index = checked[i]}, input.data(), target.data());
      sums.inputs = checksum_of(input, sums.inputs);
      sums.targets = checksum_of(target, sums.targets);
    } catch (const DataError&) {
      sums.inputs = checksum({}, sums.inputs);
    }
  }
  return sums;
}

std::optional<NumberFormat> number_format(const DataConfig& config) {
  if (config.has_csv()) {
    return NumberFormat{.scale = config.csv().scale(), .regression = config.csv().regression()};
  }
  if (!config.has_npy()) return NumberFormat{.scale = 1.0F / 255};
  try {
    return npy_number_format(located(config));
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::unique_ptr<Dataset> open_dataset(const DataConfig& config, Part part,
                                      const OpenOptions& options) {
  check(config);
  const bool holds_out = config.has_holdout() && !config.has_text();
  const Part files = holds_out ? Part::kTraining : part;
  std::unique_ptr<Dataset> dataset = open_within_memory(located(config), part, files, options);
  if (transforms(config) && !decodes(config)) {
    dataset = with_transforms(std::move(dataset), config, part, options);
  }
  if (holds_out) {
    dataset = make_subset(std::move(dataset), config, part);
  }
  if (config.has_mask()) {
    const uint64_t seed = part == Part::kTraining ? options.seed : kEvaluationMaskSeed;
    dataset = with_masks(std::move(dataset), config.mask(), seed);
  }
  if (config.has_mix()) dataset = with_soft_labels(std::move(dataset));
  if (!config.has_normalize()) return dataset;
  return std::make_unique<Normalized>(std::move(dataset), config);
}

void check_compatible(const Dataset& training, const Dataset& evaluation) {
  const SampleSpec& a = training.spec();
  const SampleSpec& b = evaluation.spec();
  if (a.input == b.input && a.target == b.target && a.classes == b.classes) return;
  const bool images = a.input.dtype == DType::kU8 && b.input.dtype == DType::kU8;
  throw DataError(evaluation.description(),
                  fmt::format("does not match the training samples, {}{}", training.description(),
                              images && a.input.shape != b.input.shape
                                  ? "; data.eval_transform can resize or crop to their size"
                                  : ""));
}

}  // namespace trireme::data
