#include "data/unlabeled.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "core/error.h"
#include "data/files/descriptor.h"
#include "data/files/mapped_file.h"
#include "data/formats/formats.h"
#include "data/formats/image_name.h"
#include "data/formats/npy_array.h"
#include "data/formats/tar_members.h"
#include "data/image_dataset.h"
#include "data/records.h"
#include "data/transforms/pipeline.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

enum class SourceKind { kImage, kFolder, kTar, kCsv, kNpy };

SourceKind kind_of(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) throw DataError(path, "does not exist");
  if (error) throw DataError(path, "cannot be read: " + error.message());
  if (fs::is_directory(status)) return SourceKind::kFolder;
  const auto ends = [&](std::string_view end) { return path.ends_with(end); };
  if (ends(".tar")) return SourceKind::kTar;
  if (ends(".csv") || ends(".csv.gz") || ends(".tsv")) return SourceKind::kCsv;
  if (ends(".npy")) return SourceKind::kNpy;
  return SourceKind::kImage;  // the decoder reports it if it is not one
}

bool is_table(const std::string& path) {
  const SourceKind kind = kind_of(path);
  return kind == SourceKind::kCsv || kind == SourceKind::kNpy;
}

// Images in separate files and in tar files.
class UnlabeledImages final : public Records {
 public:
  explicit UnlabeledImages(std::span<const std::string> paths)
      : source_(paths.size() == 1 ? paths[0] : fmt::format("{} files or folders", paths.size())) {
    for (const std::string& path : paths) add(path);
  }

  int64_t size() const override { return std::ssize(images_); }
  int classes() const override { return 1; }
  int32_t label(int64_t) const override { return 0; }
  void read(int64_t index, std::vector<uint8_t>& bytes) const override {
    const Entry& entry = at(index);
    const Descriptor file = open_file(entry.file);
    const bool whole = entry.member.name.empty();
    const uint64_t size = whole ? status_of(file.number(), entry.file).st_size : entry.member.size;
    read_record(file, where(index), entry.member.offset, size, bytes);
  }
  std::string where(int64_t index) const override {
    const Entry& entry = at(index);
    if (entry.member.name.empty()) return entry.file;
    return fmt::format("{}: {}", entry.file, entry.member.name);
  }
  std::string source() const override { return source_; }
  BadRecords bad_records() const override { return bad_.found(); }
  uint64_t identity() const override { return 0; }  // never cached
  Checksums checksums() const override { return {}; }

 private:
  struct Entry {
    std::string file;
    TarMember member;  // has no name if the image is the file itself
  };
  const Entry& at(int64_t index) const { return images_[index]; }

  void add(const std::string& path) {
    const size_t before = images_.size();
    const SourceKind kind = kind_of(path);
    if (kind == SourceKind::kFolder) {
      add_folder(path);
    } else if (kind == SourceKind::kTar) {
      add_tar(path);
    } else {
      images_.push_back({path, {}});
    }
    if (images_.size() == before) {
      throw DataError(path, fmt::format("has no images ({})", kImageExtensions));
    }
  }

  static bool is_image(const fs::path& path) {
    const std::string name = path.filename().string();
    return !name.starts_with('.') && has_image_name(name);
  }

  void add_folder(const std::string& path) {
    std::vector<std::string> files;
    try {
      const auto follow = fs::directory_options::follow_directory_symlink;
      const fs::recursive_directory_iterator end;
      for (fs::recursive_directory_iterator entry(path, follow); entry != end; ++entry) {
        std::error_code none;  // of a link that cannot be followed; then reading it fails
        check_folder_depth(entry->path().string(), entry.depth());
        if (!is_image(entry->path()) || entry->is_directory(none)) continue;
        files.push_back(entry->path().string());
      }
    } catch (const fs::filesystem_error& error) {
      throw DataError(error.path1().string(),
                      fmt::format("cannot be listed: {}", error.code().message()));
    }
    std::ranges::sort(files);
    for (std::string& file : files) images_.push_back({std::move(file), {}});
  }

  void add_tar(const std::string& path) {
    TarMembers tar = list_tar(path);
    const size_t before = images_.size();
    for (TarMember& member : tar.members) {
      if (is_image(member.name)) images_.push_back({path, std::move(member)});
    }
    for (const std::string& name : tar.unreadable) {
      if (!is_image(name)) continue;
      bad_.add(DataError(fmt::format("{}: {}", path, name), "is a link or a sparse file"));
    }
    if (tar.damage.empty()) return;
    if (images_.size() == before) throw DataError(path, tar.damage);
    bad_.add(DataError(path, tar.damage));
  }

  std::string source_;
  std::vector<Entry> images_;
  BadRecordPolicy bad_{kUnlimitedBadRecords};
};

// Rows of tables, with the file and record number of each row.
class Rows final : public WrappedDataset {
 public:
  Rows(Samples samples, std::vector<std::string> names, BadRecords bad)
      : WrappedDataset(make_dataset(std::move(samples))),
        names_(std::move(names)),
        bad_(std::move(bad)) {}
  std::string where(int64_t index) const override { return names_[index]; }
  BadRecords bad_records() const override { return bad_; }

 private:
  std::vector<std::string> names_;
  BadRecords bad_;
};

Features read_npy_features(const std::string& path, const TensorSpec& input,
                           BadRecordPolicy& policy) {
  const MappedFile file(path);
  const NpyArray array = parse_npy(file.bytes(), path);
  if (!array.complete()) throw DataError(path, describe_truncation(array));
  if (array.shape.empty() || sample_spec(array, 1, path) != input) {
    throw DataError(path, fmt::format("is {}; the network reads {} a sample", array.describe(),
                                      input.to_string()));
  }
  const size_t row_bytes = array.row_elements() * size_of(array.dtype);
  Features features;
  std::vector<std::byte> sample(input.bytes());
  for (int64_t row = 0; row < array.rows(); ++row) {
    copy_sample(input, array.dtype, array.elements.data() + row * row_bytes, sample.data());
    if (input.dtype == DType::kF32) {
      const std::span values(reinterpret_cast<const float*>(sample.data()),
                             sample.size() / sizeof(float));
      if (const int64_t bad = first_not_finite(values); bad >= 0) {
        policy.add(DataError(
            fmt::format("{}: record {}", path, row),
            fmt::format("value {} is {}, which is not a finite number", bad, values[bad])));
        continue;
      }
    }
    const auto* bytes = reinterpret_cast<const uint8_t*>(sample.data());
    features.rows.insert(features.rows.end(), bytes, bytes + sample.size());
    features.records.push_back(row);
  }
  return features;
}

std::unique_ptr<Dataset> open_tables(std::span<const std::string> paths, const DataConfig& config,
                                     const SampleSpec& spec, const TableColumns& columns) {
  Samples samples;
  samples.spec = spec;
  samples.source = paths.size() == 1 ? paths[0] : fmt::format("{} tables", paths.size());
  std::vector<std::string> names;
  BadRecordPolicy policy(kUnlimitedBadRecords);
  for (const std::string& path : paths) {
    const Features features = kind_of(path) == SourceKind::kNpy
                                  ? read_npy_features(path, spec.input, policy)
                                  : read_csv_features(config, path, spec.input, columns, policy);
    samples.inputs.insert(samples.inputs.end(), features.rows.begin(), features.rows.end());
    for (const int64_t record : features.records) {
      names.push_back(fmt::format("{}: record {}", path, record));
    }
  }
  samples.count = std::ssize(names);
  policy.check_not_empty(samples.source, samples.count);
  samples.targets.resize(samples.count * spec.target.bytes());
  return std::make_unique<Rows>(std::move(samples), std::move(names), policy.found());
}

}  // namespace

DataConfig config_for_any_image(DataConfig config, const SampleSpec& spec) {
  const Shape& shape = spec.input.shape;
  config.clear_cache();
  config.mutable_decode()->set_channels(static_cast<int32_t>(shape[0]));
  const Pipeline pipeline(config, Part::kEvaluation, 0);
  const ImageSize wanted{static_cast<int>(shape[1]), static_cast<int>(shape[2])};
  if (pipeline.output_size({}, 0, pipeline.size()) == wanted) return config;
  ResizeConfig& resize = *config.add_eval_transform()->mutable_resize();
  resize.add_size(wanted.height);
  resize.add_size(wanted.width);
  return config;
}

std::unique_ptr<Dataset> open_unlabeled(std::span<const std::string> paths,
                                        const DataConfig& config, const SampleSpec& spec,
                                        const TableColumns& columns) {
  if (config.has_labeled_text()) return open_unlabeled_texts(paths, config, spec);
  const auto tables = std::ranges::count_if(paths, is_table);
  if (tables == std::ssize(paths)) return open_tables(paths, config, spec, columns);
  if (tables > 0) throw DataError(paths[0], "images and tables cannot be mixed in one call");
  const Shape& shape = spec.input.shape;
  if (spec.input.dtype != DType::kU8 || shape.rank() != 3 || (shape[0] != 1 && shape[0] != 3)) {
    throw DataError(paths[0],
                    fmt::format("the network reads {}, which is not an image; give rows of "
                                "numbers in .csv or .npy files",
                                spec.input.to_string()));
  }
  return make_image_dataset(std::make_unique<UnlabeledImages>(paths),
                            config_for_any_image(config, spec), Part::kEvaluation, {});
}

}  // namespace trireme::data
