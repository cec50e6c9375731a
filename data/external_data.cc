#include "data/external_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/formats/image_name.h"
#include "data/unlabeled.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

class RelabeledDataset final : public WrappedDataset {
 public:
  RelabeledDataset(std::unique_ptr<Dataset> dataset, SampleSpec spec, std::vector<int32_t> classes,
                   std::vector<std::string> names)
      : WrappedDataset(std::move(dataset)),
        spec_(std::move(spec)),
        classes_(std::move(classes)),
        names_(std::move(names)) {}

  const SampleSpec& spec() const override { return spec_; }
  std::vector<std::string> class_names() const override { return names_; }
  std::vector<int32_t> labels() const override {
    std::vector<int32_t> labels = inner().labels();
    if (classes_.empty()) return labels;
    for (int32_t& label : labels) label = classes_.at(static_cast<size_t>(label));
    return labels;
  }
  void read(SampleId id, std::byte* input, std::byte* target) const override {
    inner().read(id, input, target);
    if (classes_.empty()) return;
    int32_t label = 0;
    std::memcpy(&label, target, sizeof label);
    std::memcpy(target, &classes_.at(label), sizeof label);
  }

 private:
  SampleSpec spec_;
  std::vector<int32_t> classes_;  // the network's class for each class; empty if all are equal
  std::vector<std::string> names_;
};

// Returns where the first sample of the class is, as far as the data set knows it.
std::string first_of_class(const Dataset& dataset, int32_t label) {
  const std::vector<int32_t> labels = dataset.labels();
  const auto first = std::ranges::find(labels, label);
  const std::string where = first == labels.end() ? "" : dataset.where(first - labels.begin());
  return where.empty() ? dataset.description() : where;
}

std::vector<int32_t> match(const Dataset& dataset, const std::vector<std::string>& known) {
  std::vector<int32_t> classes;
  for (const std::string& name : dataset.class_names()) {
    const auto found = std::ranges::find(known, name);
    if (found == known.end()) {
      throw DataError(first_of_class(dataset, static_cast<int32_t>(classes.size())),
                      fmt::format("class '{}' is not one the network was trained on{}", name,
                                  did_you_mean(name, known)));
    }
    classes.push_back(static_cast<int32_t>(found - known.begin()));
  }
  return classes;
}

// Files may be compressed, see find_file().
bool exists_or_gz(const fs::path& path) {
  return fs::exists(path) || fs::exists(path.string() + ".gz");
}

bool is_tar(const fs::path& path) { return path.extension() == ".tar"; }

template <class Wanted>
bool holds(const fs::path& folder, const Wanted& wanted) {
  return std::ranges::any_of(fs::directory_iterator(folder), wanted);
}

bool has_class_folders(const fs::path& folder) {
  const auto is_image = [](const fs::directory_entry& entry) {
    return has_image_name(entry.path().filename().string());
  };
  return holds(folder, [&](const fs::directory_entry& entry) {
    return entry.is_directory() && holds(entry.path(), is_image);
  });
}

// Sets both parts, since class names are taken from the training part.
void use_class_folders(DataConfig& config, const SampleSpec& spec, const std::string& path) {
  config.clear_root();
  config.mutable_image_folder()->set_train(path);
  config.mutable_image_folder()->set_eval(path);
  if (spec.input.shape.rank() == 3) config = config_for_any_image(std::move(config), spec);
}

void use_shards(DataConfig& config, const SampleSpec& spec, const fs::path& pattern) {
  const bool same_format = config.has_webdataset();
  WebDatasetConfig& tar = *config.mutable_webdataset();
  config.set_root(pattern.parent_path().string());
  tar.clear_class_names();
  tar.clear_train();
  tar.clear_eval();
  tar.add_train(pattern.filename().string());
  tar.add_eval(pattern.filename().string());
  tar.set_classes(spec.classes);
  if (!same_format && spec.input.shape.rank() == 3) {
    config = config_for_any_image(std::move(config), spec);
  }
}

void use_table(DataConfig& config, const SampleSpec& spec, const fs::path& file) {
  config.set_root(file.parent_path().string());
  CsvConfig& csv = *config.mutable_csv();
  csv.set_train_file(file.filename().string());
  csv.set_eval_file(file.filename().string());
  if (spec.classes > 0) csv.set_classes(spec.classes);
}

// Sets both parts, since class names are taken from the training part.
void use_texts(DataConfig& config, const std::string& path) {
  config.mutable_labeled_text()->set_train(path);
  config.mutable_labeled_text()->set_eval(path);
}

// Throws ConfigError if the files of a language model would not be looked for in another folder.
void require_relative(const DataConfig& run) {
  std::vector<std::string> names{run.text().train_file(), run.text().eval_file()};
  names.insert(names.end(), run.tokens().train().begin(), run.tokens().train().end());
  names.insert(names.end(), run.tokens().eval().begin(), run.tokens().eval().end());
  for (const std::string& name : names) {
    if (!fs::path(name).is_absolute()) continue;
    throw ConfigError("--data", fmt::format("the run's configuration names the file {}, which is "
                                            "not looked for in another folder",
                                            name));
  }
}

}  // namespace

DataConfig config_for_path(const DataConfig& run, const SampleSpec& spec, const std::string& path) {
  DataConfig config = run;
  config.clear_mix();
  config.clear_normalize();  // the network normalizes as in training
  config.clear_cache();
  const bool is_pattern = path.find_first_of("*{?[") != path.npos && !fs::exists(path);
  const auto is_shard = [](const fs::directory_entry& entry) { return is_tar(entry.path()); };
  if (!is_pattern && !exists_or_gz(path)) throw ConfigError("--data", path + " does not exist");
  const bool is_folder = fs::is_directory(path);
  const bool has_run_layout = is_folder && run.has_image_folder() &&
                              fs::is_directory(fs::path(path) / run.image_folder().eval());
  if (run.has_labeled_text()) {
    config.clear_holdout();
    const fs::path eval = run.labeled_text().eval(), like_run = fs::path(path) / eval;
    const bool has_run_files =
        is_folder && !eval.empty() && eval.is_relative() && exists_or_gz(like_run);
    use_texts(config, fs::absolute(has_run_files ? like_run : fs::path(path)).string());
  } else if (run.has_text() || run.has_tokens()) {
    if (!is_folder) {
      throw ConfigError("--data", path +
                                      " is not a folder; language models are evaluated on a "
                                      "folder with files named as in the run's configuration");
    }
    require_relative(run);
    config.set_root(path);
  } else if (is_pattern || (!is_folder && is_tar(path))) {
    config.clear_holdout();
    use_shards(config, spec, path);
  } else if (!is_folder) {
    config.clear_holdout();
    use_table(config, spec, path);
  } else if (!has_run_layout && has_class_folders(path)) {
    config.clear_holdout();
    use_class_folders(config, spec, path);
  } else if (!run.has_webdataset() && holds(path, is_shard)) {
    config.clear_holdout();
    use_shards(config, spec, fs::path(path) / "*.tar");
  } else {
    config.set_root(path);
  }
  return config;
}

std::unique_ptr<Dataset> with_training_classes(std::unique_ptr<Dataset> dataset,
                                               const SampleSpec& spec,
                                               const std::vector<std::string>& class_names) {
  const SampleSpec& own = dataset->spec();
  const std::vector<std::string>& names = dataset->class_names();
  if (own.has_token_labels() && !names.empty() && !class_names.empty() && names != class_names) {
    throw DataError(dataset->description(),
                    "its vocabulary is not that of the training text, so the same token ids would "
                    "stand for other characters");
  }
  const bool named = spec.classes > 0 && !class_names.empty() && !names.empty() &&
                     own.target.dtype == DType::kI32 && own.target.shape.rank() == 0;
  if (own.input != spec.input || (!named && own.classes != spec.classes)) {
    throw DataError(dataset->description(),
                    fmt::format("the network was trained on samples of {} in {} classes",
                                spec.input.to_string(), spec.classes));
  }
  SampleSpec as = spec;
  as.target = own.target;
  as.bytes_per_token = own.bytes_per_token;
  std::vector<int32_t> classes;
  if (named) classes = match(*dataset, class_names);
  return std::make_unique<RelabeledDataset>(std::move(dataset), std::move(as), std::move(classes),
                                            class_names);
}

}  // namespace trireme::data
