#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/files/descriptor.h"
#include "data/files/file.h"
#include "data/formats/formats.h"
#include "data/formats/image_name.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

// A list of strings in one block of memory, which is more compact for millions of paths.
class Strings {
 public:
  void add(std::string_view text) {
    bytes_ += text;
    ends_.push_back(bytes_.size());
  }
  int64_t size() const { return std::ssize(ends_); }
  std::string_view operator[](int64_t index) const {
    const size_t i = index;
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(bytes_).substr(begin, ends_[i] - begin);
  }
  uint64_t hash(uint64_t seed) const {
    return XXH3_64bits_withSeed(ends_.data(), ends_.size() * sizeof(size_t),
                                XXH3_64bits_withSeed(bytes_.data(), bytes_.size(), seed));
  }

 private:
  std::string bytes_;
  std::vector<size_t> ends_;
};

struct Entry {
  std::string name;
  bool is_folder;
};

// An entry that cannot be read.
struct Unusable {
  std::string name;
  const char* problem;
};

// The files and folders in a folder, except hidden ones.
struct Listing {
  std::vector<Entry> entries;
  std::vector<Unusable> unusable;
  int64_t modified = 0;  // time in ns at which an entry was last added, removed or replaced
};

// Adds an entry. Calls stat only for links.
void classify(int folder, const dirent& found, Listing& listing) {
  unsigned char kind = found.d_type;
  if (kind == DT_LNK || kind == DT_UNKNOWN) {
    struct stat status {};
    if (fstatat(folder, found.d_name, &status, 0) != 0) {
      listing.unusable.push_back({found.d_name, "is a link to a file that does not exist"});
      return;
    }
    kind = S_ISDIR(status.st_mode) ? DT_DIR : S_ISREG(status.st_mode) ? DT_REG : DT_FIFO;
  }
  if (kind == DT_DIR || kind == DT_REG) {
    listing.entries.push_back({found.d_name, kind == DT_DIR});
  } else {
    listing.unusable.push_back({found.d_name, "is not a regular file"});
  }
}

Listing list(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
  if (!folder) throw DataError(path, fmt::format("cannot be opened: {}", std::strerror(errno)));
  Listing listing;
  const struct stat status = status_of(dirfd(folder.get()), path);
  listing.modified = nanoseconds(status.st_mtim);
  errno = 0;
  while (const dirent* found = readdir(folder.get())) {
    if (found->d_name[0] == '.') continue;
    classify(dirfd(folder.get()), *found, listing);
    errno = 0;
  }
  if (errno != 0) throw DataError(path, fmt::format("cannot be read: {}", std::strerror(errno)));
  return listing;
}

// Returns the names of the subfolders, sorted by bytes.
std::vector<std::string> class_folders(const std::string& path) {
  std::vector<std::string> names;
  for (Entry& entry : list(path).entries) {
    if (entry.is_folder) names.push_back(std::move(entry.name));
  }
  std::ranges::sort(names);
  return names;
}

// The images of a class, including those in subfolders.
struct ClassFiles {
  std::vector<std::string> images;  // paths relative to the class folder, sorted by bytes
  std::vector<Unusable> unusable;
  int64_t others = 0;             // files that are not images
  std::vector<int64_t> modified;  // Listing::modified of each folder

  void walk(const std::string& root, const std::string& folder, int depth) {
    const std::string path = root + folder;
    check_folder_depth(path, depth);
    Listing listing = list(path);
    modified.push_back(listing.modified);
    for (const auto& [name, problem] : listing.unusable) {
      if (has_image_name(name)) unusable.push_back({folder + name, problem});
    }
    std::ranges::sort(listing.entries, {}, &Entry::name);
    for (const Entry& entry : listing.entries) {
      if (entry.is_folder) {
        walk(root, folder + entry.name + "/", depth + 1);
      } else if (has_image_name(entry.name)) {
        images.push_back(folder + entry.name);
      } else {
        ++others;
      }
    }
  }
};

class FolderRecords final : public Records {
 public:
  FolderRecords(std::string folder, std::vector<std::string> classes)
      : folder_(std::move(folder)), classes_(std::move(classes)) {}

  // Adds the files of the next class.
  void add(const ClassFiles& files) {
    for (const std::string& image : files.images) paths_.add(image);
    others_ += files.others;
    ends_.push_back(paths_.size());
    modified_.insert(modified_.end(), files.modified.begin(), files.modified.end());
  }
  void finish(BadRecords bad) { bad_ = std::move(bad); }

  int64_t size() const override { return paths_.size(); }
  int classes() const override { return static_cast<int>(classes_.size()); }
  int32_t label(int64_t index) const override {
    return static_cast<int32_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
  }
  void read(int64_t index, std::vector<uint8_t>& bytes) const override;
  std::string where(int64_t index) const override {
    return fmt::format("{}/{}/{}", folder_, classes_[label(index)], paths_[index]);
  }
  std::string source() const override {
    return fmt::format("ImageFolder {} ({} classes{})", folder_, classes_.size(),
                       others_ == 0
                           ? ""
                           : fmt::format("; {} files are ignored, since their names do not "
                                         "end in {}",
                                         others_, kImageExtensions));
  }
  std::vector<std::string> class_names() const override {
    std::vector<std::string> names;
    for (const std::string& name : classes_) names.push_back(printable(name));
    return names;
  }
  BadRecords bad_records() const override { return bad_; }
  uint64_t identity() const override;
  Checksums checksums() const override {
    Checksums sums{.inputs = paths_.hash(0), .targets = checksum_of(ends_)};
    for (const std::string& name : classes_) sums.targets = checksum_of(name, sums.targets);
    return sums;
  }

 private:
  const std::string folder_;
  const std::vector<std::string> classes_;
  Strings paths_;                  // relative to the folders of their classes
  std::vector<int64_t> ends_;      // number of records in each class and all classes before it
  int64_t others_ = 0;             // files that are not images
  std::vector<int64_t> modified_;  // Listing::modified of each folder
  BadRecords bad_;
};

// Images may be overwritten, which does not change their folder, or replaced by others with the
// same size and time, which does.
uint64_t FolderRecords::identity() const {
  std::vector<int64_t> numbers = modified_;
  for (int64_t i = 0; i < size(); ++i) {
    struct stat status {};
    if (::stat(where(i).c_str(), &status) != 0) continue;  // reported when it is read
    numbers.push_back(status.st_size);
    numbers.push_back(nanoseconds(status.st_mtim));
  }
  uint64_t hash = XXH3_64bits(numbers.data(), numbers.size() * sizeof(int64_t));
  for (const std::string& name : classes_) {
    hash = XXH3_64bits_withSeed(name.data(), name.size(), hash);
  }
  return paths_.hash(hash);
}

void FolderRecords::read(int64_t index, std::vector<uint8_t>& bytes) const {
  const std::string path = where(index);
  const Descriptor file = open_file(path);
  read_record(file, path, 0, status_of(file.number(), path).st_size, bytes);
}

void check_known(const std::string& folder, const std::vector<std::string>& names,
                 const std::vector<std::string>& classes, const std::string& training) {
  for (const std::string& name : names) {
    if (std::ranges::binary_search(classes, name)) continue;
    throw DataError(folder + "/" + name, fmt::format("is not a class: the training folder {} has "
                                                     "no folder of that name",
                                                     training));
  }
}

// Returns the images of a class. Reports unusable files and an empty class to `policy`.
ClassFiles list_class(const std::string& folder, const std::string& name, BadRecordPolicy& policy) {
  ClassFiles files;
  const std::string path = folder + "/" + name;
  files.walk(path + "/", "", 0);
  std::ranges::sort(files.images);
  for (const auto& [file, problem] : files.unusable) {
    policy.add(DataError(path + "/" + file, problem));
  }
  if (files.images.empty()) {
    const std::string others =
        files.others == 0 ? "" : fmt::format("; it has {} other file(s)", files.others);
    policy.add(DataError(
        path, fmt::format("class '{}' has no images ({}){}", name, kImageExtensions, others)));
  }
  return files;
}

}  // namespace

std::unique_ptr<Records> open_image_folder(const DataConfig& config, Part part,
                                           const OpenOptions& options) {
  check_root(config.root());
  const std::string training = (fs::path(config.root()) / config.image_folder().train()).string();
  const std::string folder =
      part == Part::kTraining ? training
                              : (fs::path(config.root()) / config.image_folder().eval()).string();
  const std::vector<std::string> classes = class_folders(training);
  if (classes.empty()) throw DataError(training, "has no subfolders; it needs one for each class");
  const std::vector<std::string> here = folder == training ? classes : class_folders(folder);
  check_known(folder, here, classes, training);
  auto records = std::make_unique<FolderRecords>(folder, classes);
  BadRecordPolicy policy(bad_record_limit(config));
  for (size_t i = 0; i < classes.size(); ++i) {
    if (options.progress) {
      options.progress(fmt::format("listing class {} of {}", i + 1, classes.size()));
    }
    const bool is_here = std::ranges::binary_search(here, classes[i]);
    records->add(is_here ? list_class(folder, classes[i], policy) : ClassFiles());
  }
  policy.check(records->source());
  policy.check_not_empty(records->source(), records->size());
  records->finish(policy.found());
  return records;
}

}  // namespace trireme::data
