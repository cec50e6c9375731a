#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <limits>
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

constexpr size_t header_bytes(size_t dimensions) { return 4 + 4 * dimensions; }

// An IDX file consists of 00 00, the element type, the number of dimensions, the extents as
// big-endian 32-bit integers, and the elements in row-major order.
struct Idx {
  std::string path;
  std::vector<int64_t> extents;
  std::vector<uint8_t> elements;
  int64_t record_bytes = 0;
  int64_t complete = 0;                 // records that are entirely in the file
  std::optional<DataError> truncation;  // set if these are fewer than declared

  int64_t declared() const { return extents[0]; }
};

struct FileKind {
  const char* contents;
  int min_dimensions;
  int max_dimensions;
  const char* dimensions;  // for messages
};
constexpr FileKind kImages{"images", 3, 4, "3 or 4 dimensions, [N, H, W] or [N, C, H, W]"};
constexpr FileKind kLabels{"labels", 1, 1, "1 dimension, [N]"};

// Returns the extents in the header, which `bytes` begins with.
std::vector<int64_t> read_header(const std::string& path, std::span<const uint8_t> bytes,
                                 const FileKind& kind) {
  const auto& b = bytes;
  if (b.size() < 4) {
    throw DataError(path, fmt::format("is {} bytes long; the header alone has {} or more", b.size(),
                                      4 + 4 * kind.min_dimensions));
  }
  if (b[0] != 0 || b[1] != 0) {
    throw DataError(path, fmt::format("begins with {:02x} {:02x} {:02x} {:02x}; IDX {} begin with "
                                      "00 00 {:02x} {:02x}",
                                      b[0], b[1], b[2], b[3], kind.contents, kUnsignedByte,
                                      kind.min_dimensions));
  }
  if (b[2] != kUnsignedByte) {
    throw DataError(path,
                    fmt::format("has elements of IDX type 0x{:02x}; only unsigned bytes, 0x{:02x}, "
                                "are supported",
                                b[2], kUnsignedByte));
  }
  if (b[3] < kind.min_dimensions || b[3] > kind.max_dimensions) {
    throw DataError(
        path, fmt::format("has {} dimension(s); {} have {}", b[3], kind.contents, kind.dimensions));
  }
  const size_t header = header_bytes(b[3]);
  if (b.size() < header) {
    throw DataError(path,
                    fmt::format("is {} bytes long; the header alone has {}", b.size(), header));
  }
  std::vector<int64_t> extents;
  for (size_t at = 4; at < header; at += 4) {
    extents.push_back(int64_t{b[at]} << 24 | int64_t{b[at + 1]} << 16 | int64_t{b[at + 2]} << 8 |
                      int64_t{b[at + 3]});
  }
  return extents;
}

// Returns the size of a file with these extents.
uint64_t file_size(const std::vector<int64_t>& extents) {
  uint64_t size = 1;
  bool fits = true;
  for (const int64_t extent : extents) {
    fits = fits && !__builtin_mul_overflow(size, static_cast<uint64_t>(extent), &size);
  }
  constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max() / 2;
  return std::min(fits ? size : kUnlimited, kUnlimited) + header_bytes(extents.size());
}

// Counts the records that are entirely in the file.
void count_records(Idx& idx, const std::string& damage) {
  bool fits = true;
  idx.record_bytes = 1;
  for (size_t i = 1; i < idx.extents.size(); ++i) {
    fits = fits && !__builtin_mul_overflow(idx.record_bytes, idx.extents[i], &idx.record_bytes);
  }
  if (std::find(idx.extents.begin(), idx.extents.end(), 0) != idx.extents.end()) {
    throw DataError(idx.path, fmt::format("has no elements: its extents are [{}]",
                                          fmt::join(idx.extents, ", ")));
  }
  const auto length = static_cast<int64_t>(idx.elements.size());
  idx.complete = fits ? std::min(length / idx.record_bytes, idx.declared()) : 0;
  if (idx.complete < idx.declared()) {
    const std::string what =
        fmt::format("is truncated: the header declares [{}] elements, but the file has {}",
                    fmt::join(idx.extents, ", "), length);
    idx.truncation.emplace(fmt::format("{}: record {}", idx.path, idx.complete),
                           damage.empty() ? what : fmt::format("{} ({})", what, damage));
  } else if (length > idx.complete * idx.record_bytes) {
    throw DataError(idx.path, fmt::format("has data after its last record, {} of [{}]",
                                          idx.complete - 1, fmt::join(idx.extents, ", ")));
  }
}

Idx read(const std::string& path, const FileKind& kind, BadRecordPolicy& policy) {
  File file = read_for(policy, path, [&](std::span<const uint8_t> head) {
    return file_size(read_header(path, head, kind));
  });
  Idx idx;
  idx.path = path;
  idx.extents = read_header(path, file.bytes, kind);
  const auto header = static_cast<std::ptrdiff_t>(header_bytes(idx.extents.size()));
  file.bytes.erase(file.bytes.begin(), file.bytes.begin() + header);
  idx.elements = std::move(file.bytes);
  count_records(idx, file.damage);
  if (idx.truncation && !policy.skips()) throw DataError(*idx.truncation);
  if (!idx.truncation && !file.damage.empty()) policy.add(DataError(path, file.damage));
  return idx;
}

// Returns how many records have both an image and a label. The others are bad. Throws DataError if
// the files do not belong together: a missing record may be anywhere.
int64_t count_pairs(const Idx& images, const Idx& labels, BadRecordPolicy& policy) {
  const int64_t all = images.declared();
  if (labels.declared() != all) {
    throw DataError(labels.path, fmt::format("has {} labels, but {} has {} images",
                                             labels.declared(), images.path, all));
  }
  const int64_t pairs = std::min(images.complete, labels.complete);
  if (pairs < all) {
    policy.add(images.complete == pairs ? *images.truncation : *labels.truncation, all - pairs);
  }
  return pairs;
}

// Finds a file, also under the names of some unpacked copies of MNIST, which have a dot instead of
// the second dash.
std::string find(const DataConfig& config, const std::string& name, const std::string& field) {
  if (name.empty()) throw ConfigError("data.idx." + field, "is empty; set it to a file name");
  std::vector<std::string> names{name};
  if (const size_t dash = name.find("-idx"); dash != std::string::npos) {
    names.push_back(name);
    names.back()[dash] = '.';
  }
  const bool is_default = name == IdxConfig::default_instance().train_images() ||
                          name == IdxConfig::default_instance().eval_images();
  return find_file(
      config.root(), names,
      is_default ? "; " + script_command("get-data") + " downloads MNIST and Fashion-MNIST" : "");
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
  std::vector<bool> keep(count_pairs(images, labels, policy));
  std::vector<int32_t> targets;
  for (size_t i = 0; i < keep.size(); ++i) {
    const auto label = checked_label(labels.elements[i], classes, labels.path,
                                     static_cast<int64_t>(i), "data.idx.classes", policy);
    keep[i] = label.has_value();
    if (label) targets.push_back(*label);
  }
  keep_rows(images.elements, images.record_bytes, keep);
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
  finalize(policy, samples);  // throws if there are no images, so the product below cannot overflow
  interleave(samples.inputs, shape[0], shape[1] * shape[2]);
  return samples;
}

}  // namespace trireme::data
