#include "data/formats/tar_walk.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

#include "core/json.h"
#include "core/parse_number.h"
#include "core/text.h"
#include "data/files/descriptor.h"
#include "data/formats/image_name.h"
#include "data/formats/tar_members.h"

namespace trireme::data {
namespace {

constexpr int32_t kMaxLabel = (1 << 24) - 1;  // see checked_classes
constexpr size_t kMaxLabelBytes = 1 << 20;    // size of a .cls or .json
constexpr std::string_view kArray = ".npy";

enum class Role { kNone, kImage, kLabel };

struct Name {
  std::string_view key;        // "train/000017"
  std::string_view extension;  // "seg.png"
};

std::optional<Name> split(std::string_view path) {
  const size_t slash = path.rfind('/');
  const size_t base = slash == path.npos ? 0 : slash + 1;
  const size_t dot = path.find('.', base);
  if (dot == path.npos || dot == base) return std::nullopt;
  return Name{path.substr(0, dot), path.substr(dot + 1)};
}

// A label, or the reason why it is invalid.
struct Label {
  int32_t value = 0;
  std::string problem;  // empty if the label is valid
};

Label label_of(int64_t value) {
  if (value < 0 || value > kMaxLabel) {
    return {0, fmt::format("label {} is not in [0, {}]", value, kMaxLabel)};
  }
  return {static_cast<int32_t>(value), {}};
}

Label label_of(std::string_view text) {
  const std::string_view digits = trimmed(text, std::string_view(" \t\r\n\0", 5));
  if (const auto value = parse_number<int64_t>(digits)) return label_of(*value);
  return {0, fmt::format("label '{}' is not an integer", digits.substr(0, 40))};
}

Label label_of_json(std::string_view text, const std::string& field) {
  const nlohmann::json parsed = parse_json(text, /*throws=*/false);
  if (parsed.is_discarded()) return {0, "is not valid JSON"};
  const nlohmann::json* at = &parsed;
  for (size_t begin = 0; begin <= field.size();) {
    const size_t end = std::min(field.find('.', begin), field.size());
    const auto found = at->find(field.substr(begin, end - begin));  // end() if not an object
    if (found == at->end()) return {0, fmt::format("has no field '{}'", field)};
    at = &*found;
    begin = end + 1;
  }
  if (at->is_string()) return label_of(std::string_view(at->get_ref<const std::string&>()));
  if (at->is_number()) return label_of(std::string_view(at->dump()));
  return {0, fmt::format("field '{}' is not a number but of type {}", field, at->type_name())};
}

TarStamp stamp_of(const Descriptor& file, const std::string& path, const LabelSource& labels) {
  return {status_of(file.number(), path), labels.identity()};
}

class Walk {
 public:
  Walk(const std::string& path, const LabelSource& labels)
      : path_(path),
        labels_(labels),
        file_(open_file(path)),
        stamp_(stamp_of(file_, path, labels)),
        archive_(open_tar(file_, path)) {}

  TarIndex run() {
    while (!ended_) step();
    finish_record();
    return index_.finish(stamp_);
  }

 private:
  // A member that belongs to a sample.
  struct Member {
    std::string path;
    uint64_t offset;  // position of its data
    uint64_t size;

    bool is_array() const { return path.ends_with(kArray); }
  };
  // Consecutive members with the same key.
  struct Record {
    std::string key;
    std::optional<Member> image;
    std::optional<int32_t> label;
    std::optional<TarProblem> problem;  // the first one

    bool complete() const { return image && label && !problem; }
    void set_problem(std::string where, std::string what) {
      if (!problem) problem = {std::move(where), std::move(what)};
    }
  };

  void step() {
    archive_entry* entry = nullptr;
    const int status = archive_read_next_header(archive_.get(), &entry);
    const uint64_t header = header_position(archive_.get());
    if (status == ARCHIVE_EOF) return end(header);
    if (status != ARCHIVE_OK && status != ARCHIVE_WARN) return damaged(header);
    any_ = true;
    const char* name = name_of_member(entry);
    if (!name) return stop(fmt::format("the name of the member at byte {} cannot be read", header));
    const int64_t size = archive_entry_size(entry);
    const Member member{name, static_cast<uint64_t>(archive_filter_bytes(archive_.get(), 0)),
                        static_cast<uint64_t>(std::max<int64_t>(size, 0))};
    const bool plain = is_plain_file(entry);
    if (const auto split_name = split(member.path)) take(*split_name, member, plain);
    if (plain && (member.offset > stamp_.bytes || member.size > stamp_.bytes - member.offset)) {
      stop(fmt::format("is truncated within {}: its {} bytes begin at {}, but the shard ends at {}",
                       member.path, member.size, member.offset, stamp_.bytes));
    }
  }

  void take(const Name& name, const Member& member, bool plain) {
    const Role role = role_of(name.extension);
    if (role == Role::kImage && plain && name.key == record_.key && record_.image &&
        record_.image->is_array() != member.is_array()) {
      // If a record has an image file, its arrays are not its image.
      if (member.is_array()) return;
      record_.image.reset();
    }
    const bool begins_next = role != Role::kNone && record_.complete();  // another sample, same key
    if (name.key != record_.key || begins_next) {
      finish_record();
      record_ = {std::string(name.key), {}, {}, {}};
      in_record_ = true;
    }
    if (role == Role::kNone) return;
    if (!plain) return record_.set_problem(member.path, "is a link, a folder or a sparse file");
    if (member.offset > stamp_.bytes || member.size > stamp_.bytes - member.offset) return;
    role == Role::kImage ? take_image(member) : take_label(member);
  }

  Role role_of(std::string_view extension) const {
    if (is_image_extension(extension) || extension == kArray.substr(1)) return Role::kImage;
    return extension == (labels_.json_field.empty() ? "cls" : "json") ? Role::kLabel : Role::kNone;
  }

  void take_image(const Member& member) {
    if (record_.image) {
      return record_.set_problem(
          record_.key, fmt::format("has two images, {} and {}", record_.image->path, member.path));
    }
    if (member.size == 0) return record_.set_problem(member.path, "is empty");
    if (member.size > std::numeric_limits<uint32_t>::max()) {
      return record_.set_problem(
          member.path, fmt::format("has {} bytes; an image has less than 4 GiB", member.size));
    }
    record_.image = member;
  }

  void take_label(const Member& member) {
    if (record_.label) return record_.set_problem(record_.key, "has two labels");
    if (member.size > kMaxLabelBytes) {
      return record_.set_problem(
          member.path,
          fmt::format("has {} bytes; a label file has at most {}", member.size, kMaxLabelBytes));
    }
    buffer_.resize(member.size);
    const la_ssize_t got = archive_read_data(archive_.get(), buffer_.data(), buffer_.size());
    if (got != static_cast<la_ssize_t>(member.size)) {
      return record_.set_problem(member.path, fmt::format("cannot be read: {}", reason()));
    }
    const std::string_view text(buffer_.data(), buffer_.size());
    const Label label =
        labels_.json_field.empty() ? label_of(text) : label_of_json(text, labels_.json_field);
    if (!label.problem.empty()) return record_.set_problem(member.path, label.problem);
    record_.label = label.value;
  }

  void finish_record() {
    if (!std::exchange(in_record_, false)) return;
    const std::string& key = record_.key;
    if (!record_.image) {
      record_.set_problem(key, fmt::format("has no image ({})", kImageExtensions));
    }
    if (!record_.label) {
      record_.set_problem(key, labels_.json_field.empty() ? "has no label (.cls)" : "has no .json");
    }
    if (!record_.problem && !keys_.insert(key).second) {
      record_.set_problem(key, "another sample of the shard has the same key");
    }
    if (!record_.problem) {
      const Member& image = *record_.image;
      const TarSample sample{image.offset, static_cast<uint32_t>(image.size), *record_.label};
      if (index_.add(sample, image.path)) return;
      record_.set_problem(key, "the names of the shard's samples exceed 4 GiB");
    }
    index_.add(std::move(*record_.problem));
  }

  // Ends the scan because of a problem, which is attributed to the current record if that is
  // incomplete, and otherwise to the shard.
  void stop(std::string what) {
    ended_ = true;
    if (in_record_ && !record_.complete()) {
      record_.set_problem(record_.key, std::move(what));
      return;
    }
    finish_record();
    index_.add({{}, std::move(what)});
  }

  void damaged(uint64_t at) {
    if (!any_) throw_tar_error(archive_.get(), path_);
    stop(fmt::format("is damaged or truncated at byte {}: {}", at, reason()));
  }

  void end(uint64_t at) {
    std::string problem = problem_of_end(file_, at, stamp_.bytes);
    if (!problem.empty()) return stop(std::move(problem));
    ended_ = true;
  }

  std::string reason() const { return error_message_of(archive_.get()); }

  const std::string& path_;
  const LabelSource& labels_;
  const Descriptor file_;
  const TarStamp stamp_;
  const std::unique_ptr<archive, int (*)(archive*)> archive_;
  bool any_ = false;
  bool ended_ = false;
  bool in_record_ = false;
  Record record_;
  std::unordered_set<std::string> keys_;  // keys of valid samples
  std::vector<char> buffer_;
  TarIndexWriter index_;
};

}  // namespace

uint64_t LabelSource::identity() const { return XXH3_64bits(json_field.data(), json_field.size()); }

TarStamp stamp_of(const std::string& shard, const LabelSource& labels) {
  return stamp_of(open_file(shard), shard, labels);
}

TarIndex walk_tar(const std::string& shard, const LabelSource& labels) {
  return Walk(shard, labels).run();
}

}  // namespace trireme::data
