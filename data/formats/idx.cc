#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/error.h"
#include "data/file.h"
#include "data/formats/formats.h"

namespace trireme {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;

// An IDX file: 00 00, type of elements, number of dimensions; the dimensions as big-endian 32-bit
// numbers; the elements, last dimension contiguous.
struct Idx {
  std::string path;
  std::vector<int64_t> extents;
  std::vector<uint8_t> elements;
};

// `what` the file is for, and how many dimensions that has.
struct Kind {
  const char* what;
  int least;
  int most;
  const char* dimensions;
};
constexpr Kind kImages{"images", 3, 4, "3 or 4 dimensions, [N, H, W] or [N, C, H, W]"};
constexpr Kind kLabels{"labels", 1, 1, "1 dimension, [N]"};

size_t check_magic(const File& file, const Kind& kind) {
  const std::vector<uint8_t>& b = file.bytes;
  if (b.size() < 4) {
    throw DataError(file.path, fmt::format("is {} bytes long; the header alone has {} or more",
                                           b.size(), 4 + 4 * kind.least));
  }
  if (b[0] != 0 || b[1] != 0) {
    throw DataError(file.path,
                    fmt::format("begins with {:02x} {:02x} {:02x} {:02x}; IDX {} begin with "
                                "00 00 {:02x} {:02x}",
                                b[0], b[1], b[2], b[3], kind.what, kUnsignedByte, kind.least));
  }
  if (b[2] != kUnsignedByte) {
    throw DataError(file.path,
                    fmt::format("has elements of IDX type 0x{:02x}; only unsigned bytes, 0x{:02x}, "
                                "are read",
                                b[2], kUnsignedByte));
  }
  if (b[3] < kind.least || b[3] > kind.most) {
    throw DataError(file.path, fmt::format("has {} dimension(s); {} have {}", b[3], kind.what,
                                           kind.dimensions));
  }
  const size_t header = 4 + 4 * size_t{b[3]};
  if (b.size() < header) {
    throw DataError(file.path,
                    fmt::format("is {} bytes long; the header alone has {}", b.size(), header));
  }
  return header;
}

void check_length(const Idx& idx, size_t found) {
  int64_t record = 1;
  int64_t total = 0;
  bool fits = true;
  for (size_t i = 1; i < idx.extents.size(); ++i) {
    fits = fits && !__builtin_mul_overflow(record, idx.extents[i], &record);
  }
  fits = fits && !__builtin_mul_overflow(record, idx.extents[0], &total);
  if (std::find(idx.extents.begin(), idx.extents.end(), 0) != idx.extents.end()) {
    throw DataError(idx.path, fmt::format("says that it has [{}] elements: none",
                                          fmt::join(idx.extents, ", ")));
  }
  const auto length = static_cast<int64_t>(found);
  if (!fits || length < total) {
    throw DataError(fmt::format("{}: record {}", idx.path, fits ? length / record : 0),
                    fmt::format("is cut short: [{}] elements were announced, {} are there",
                                fmt::join(idx.extents, ", "), found));
  }
  if (length > total) {
    throw DataError(idx.path,
                    fmt::format("has {} bytes after its last record, {} of [{}]", length - total,
                                idx.extents[0] - 1, fmt::join(idx.extents, ", ")));
  }
}

Idx read(const std::string& path, const Kind& kind) {
  File file = read_file(path);
  const size_t header = check_magic(file, kind);
  Idx idx{path, {}, {}};
  for (size_t at = 4; at < header; at += 4) {
    const auto* b = file.bytes.data() + at;
    idx.extents.push_back(int64_t{b[0]} << 24 | int64_t{b[1]} << 16 | int64_t{b[2]} << 8 |
                          int64_t{b[3]});
  }
  check_length(idx, file.bytes.size() - header);
  file.bytes.erase(file.bytes.begin(), file.bytes.begin() + static_cast<std::ptrdiff_t>(header));
  idx.elements = std::move(file.bytes);
  return idx;
}

// Some unpacked copies of MNIST have a dot in place of the second dash.
std::string find(const DataConfig& config, const std::string& name, const std::string& field) {
  if (name.empty()) throw ConfigError("data.idx." + field, "is empty: it names a file");
  std::vector<std::string> names{name};
  if (const size_t dash = name.find("-idx"); dash != std::string::npos) {
    names.push_back(name);
    names.back()[dash] = '.';
  }
  const bool is_default = name == IdxConfig::default_instance().train_images() ||
                          name == IdxConfig::default_instance().eval_images();
  return find_file(config.root(), names,
                   is_default ? "; launch/get-data fetches MNIST and Fashion-MNIST" : "");
}

}  // namespace

Samples read_idx(const DataConfig& config, Part part) {
  const IdxConfig& idx = config.idx();
  const int classes = checked_classes(idx.classes(), "data.idx.classes");
  const bool training = part == Part::kTraining;
  Idx images = read(training ? find(config, idx.train_images(), "train_images")
                             : find(config, idx.eval_images(), "eval_images"),
                    kImages);
  const Idx labels = read(training ? find(config, idx.train_labels(), "train_labels")
                                   : find(config, idx.eval_labels(), "eval_labels"),
                          kLabels);
  if (images.extents[0] != labels.extents[0]) {
    throw DataError(labels.path, fmt::format("has {} labels, but {} has {} images",
                                             labels.extents[0], images.path, images.extents[0]));
  }
  std::vector<int32_t> targets(labels.elements.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    targets[i] = checked_label(labels.elements[i], classes, labels.path, static_cast<int64_t>(i),
                               "data.idx.classes");
  }
  Samples samples;
  std::vector<int64_t> shape(images.extents.begin() + 1, images.extents.end());
  if (shape.size() == 2) shape.insert(shape.begin(), 1);
  samples.spec.input = {DType::kU8, Shape(shape), Layout::row_major()};
  samples.spec.target = label_spec();
  samples.spec.classes = classes;
  samples.spec.scale = 1.0F / 255;
  samples.count = images.extents[0];
  samples.inputs = std::move(images.elements);
  samples.targets = label_bytes(targets);
  samples.source = fmt::format("IDX {}, {}", images.path, labels.path);
  return samples;
}

}  // namespace trireme
