#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/installation.h"
#include "data/files/file.h"
#include "data/formats/formats.h"

namespace trireme::data {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;

// An IDX file: 00 00, type of elements, number of dimensions; the dimensions as big-endian 32-bit
// numbers; the elements, last dimension contiguous.
struct Idx {
  std::string path;
  std::vector<int64_t> extents;
  std::vector<uint8_t> elements;
  int64_t record = 0;            // bytes of one
  int64_t whole = 0;             // records that are there
  std::optional<DataError> cut;  // why these are fewer than announced

  int64_t announced() const { return extents[0]; }
};

// `what` the file is for, and how many dimensions that has.
struct FileKind {
  const char* what;
  int least;
  int most;
  const char* dimensions;
};
constexpr FileKind kImages{"images", 3, 4, "3 or 4 dimensions, [N, H, W] or [N, C, H, W]"};
constexpr FileKind kLabels{"labels", 1, 1, "1 dimension, [N]"};

size_t check_magic(const File& file, const FileKind& kind) {
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

// Counts the records that are there.
void measure(Idx& idx, const std::string& damage) {
  bool fits = true;
  idx.record = 1;
  for (size_t i = 1; i < idx.extents.size(); ++i) {
    fits = fits && !__builtin_mul_overflow(idx.record, idx.extents[i], &idx.record);
  }
  if (std::find(idx.extents.begin(), idx.extents.end(), 0) != idx.extents.end()) {
    throw DataError(idx.path, fmt::format("says that it has [{}] elements: none",
                                          fmt::join(idx.extents, ", ")));
  }
  const auto length = static_cast<int64_t>(idx.elements.size());
  idx.whole = fits ? std::min(length / idx.record, idx.announced()) : 0;
  if (idx.whole < idx.announced()) {
    const std::string cut = fmt::format("is cut short: [{}] elements were announced, {} are there",
                                        fmt::join(idx.extents, ", "), length);
    idx.cut.emplace(fmt::format("{}: record {}", idx.path, idx.whole),
                    damage.empty() ? cut : fmt::format("{} ({})", cut, damage));
  } else if (length > idx.whole * idx.record) {
    throw DataError(idx.path, fmt::format("has {} bytes after its last record, {} of [{}]",
                                          length - idx.whole * idx.record, idx.whole - 1,
                                          fmt::join(idx.extents, ", ")));
  }
}

Idx read(const std::string& path, const FileKind& kind, BadRecordPolicy& policy) {
  File file = read_for(policy, path);
  const size_t header = check_magic(file, kind);
  Idx idx;
  idx.path = path;
  for (size_t at = 4; at < header; at += 4) {
    const auto* b = file.bytes.data() + at;
    idx.extents.push_back(int64_t{b[0]} << 24 | int64_t{b[1]} << 16 | int64_t{b[2]} << 8 |
                          int64_t{b[3]});
  }
  file.bytes.erase(file.bytes.begin(), file.bytes.begin() + static_cast<std::ptrdiff_t>(header));
  idx.elements = std::move(file.bytes);
  measure(idx, file.damage);
  if (idx.cut && !policy.skips()) throw DataError(*idx.cut);
  if (!idx.cut && !file.damage.empty()) policy.add(DataError(path, file.damage));
  return idx;
}

// How many records have both an image and a label; those that lack one are bad.
int64_t pair_up(const Idx& images, const Idx& labels, BadRecordPolicy& policy) {
  const int64_t all = std::max(images.announced(), labels.announced());
  const int64_t pairs = std::min(images.whole, labels.whole);
  if (pairs == all) return pairs;
  const std::optional<DataError>& cut = images.whole == pairs ? images.cut : labels.cut;
  policy.add(cut ? *cut
                 : DataError(labels.path,
                             fmt::format("has {} labels, but {} has {} images", labels.announced(),
                                         images.path, images.announced())),
             all - pairs);
  return pairs;
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
  return find_file(
      config.root(), names,
      is_default ? "; " + script_command("get-data") + " fetches MNIST and Fashion-MNIST" : "");
}

}  // namespace

Samples read_idx(const DataConfig& config, Part part) {
  const IdxConfig& idx = config.idx();
  const int classes = checked_classes(idx.classes(), "data.idx.classes");
  const bool training = part == Part::kTraining;
  BadRecordPolicy policy(bad_record_limit(config));
  Idx images = read(training ? find(config, idx.train_images(), "train_images")
                             : find(config, idx.eval_images(), "eval_images"),
                    kImages, policy);
  const Idx labels = read(training ? find(config, idx.train_labels(), "train_labels")
                                   : find(config, idx.eval_labels(), "eval_labels"),
                          kLabels, policy);
  std::vector<bool> stays(pair_up(images, labels, policy));
  std::vector<int32_t> targets;
  for (size_t i = 0; i < stays.size(); ++i) {
    const auto label = checked_label(labels.elements[i], classes, labels.path,
                                     static_cast<int64_t>(i), "data.idx.classes", policy);
    stays[i] = label.has_value();
    if (label) targets.push_back(*label);
  }
  keep_rows(images.elements, images.record, stays);
  Samples samples;
  std::vector<int64_t> shape(images.extents.begin() + 1, images.extents.end());
  if (shape.size() == 2) shape.insert(shape.begin(), 1);
  samples.spec.input = {DType::kU8, Shape(shape), Layout::channels_last()};
  samples.spec.target = label_spec();
  samples.spec.classes = classes;
  samples.spec.scale = 1.0F / 255;
  samples.count = std::ssize(targets);
  samples.inputs = std::move(images.elements);
  samples.targets = label_bytes(targets);
  samples.source = fmt::format("IDX {}, {}", images.path, labels.path);
  finalize(policy, samples);  // so there is a image, of a size that memory holds
  interleave(samples.inputs, shape[0], shape[1] * shape[2]);
  return samples;
}

}  // namespace trireme::data
