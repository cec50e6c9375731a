#include "data/formats/tar_index.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "data/files/descriptor.h"

namespace trireme::data {
namespace {

static_assert(std::endian::native == std::endian::little, "index files are little-endian");

constexpr std::array<char, 8> kIndexMagic{'T', 'R', 'I', 'R', 'T', 'A', 'R', '2'};
constexpr size_t kMaxProblems = 8;

// An index consists of this header, the samples [count], the ends of their names [count], the
// concatenated names, and the problems, each as two null-terminated strings.
struct IndexHeader {
  std::array<char, 8> magic;
  uint64_t checksum;  // XXH3 of everything that follows
  TarStamp stamp;
  uint64_t count;
  uint64_t name_bytes;
  uint64_t problem_bytes;
  int64_t problem_count;
  int64_t largest_label;
};
static_assert(std::has_unique_object_representations_v<IndexHeader>);
static_assert(std::is_trivially_copyable_v<IndexHeader>);
static_assert(std::has_unique_object_representations_v<TarSample>);

constexpr size_t kHashedFrom = offsetof(IndexHeader, stamp);

uint64_t hash(std::span<const uint8_t> bytes) {
  return XXH3_64bits(bytes.data() + kHashedFrom, bytes.size() - kHashedFrom);
}

// Removes `count` elements from the front of `rest` and returns them. Returns nullopt if `rest` is
// too short.
template <class T>
std::optional<std::span<const T>> take(std::span<const uint8_t>& rest, uint64_t count) {
  if (count > rest.size() / sizeof(T)) return std::nullopt;
  const std::span<const T> taken(reinterpret_cast<const T*>(rest.data()), count);
  rest = rest.subspan(taken.size_bytes());
  return taken;
}

std::string_view text(std::span<const char> bytes) { return {bytes.data(), bytes.size()}; }

// Removes the null-terminated string at the front of `rest` and returns it.
std::optional<std::string> take_string(std::string_view& rest) {
  const size_t end = rest.find('\0');
  if (end == rest.npos) return std::nullopt;
  std::string taken(rest.substr(0, end));
  rest.remove_prefix(end + 1);
  return taken;
}

template <class T>
void append(std::vector<uint8_t>& bytes, std::span<const T> items) {
  const auto* from = reinterpret_cast<const uint8_t*>(items.data());
  bytes.insert(bytes.end(), from, from + items.size_bytes());
}

// Replaces control characters, including null, which terminates strings in the index. Names and
// labels of damaged shards may contain any bytes.
std::string without_controls(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; }, '?');
  return text;
}

bool are_valid(std::span<const TarSample> samples, uint64_t bytes, int64_t largest_label) {
  return std::ranges::all_of(samples, [&](const TarSample& sample) {
    return sample.offset <= bytes && sample.size <= bytes - sample.offset && sample.label >= 0 &&
           sample.label <= largest_label;
  });
}

}  // namespace

TarStamp::TarStamp(const struct stat& shard, uint64_t label_settings)
    : bytes(static_cast<uint64_t>(shard.st_size)),
      modified(nanoseconds(shard.st_mtim)),
      changed(nanoseconds(shard.st_ctim)),
      settings(label_settings) {}

std::optional<TarIndex> TarIndex::checked(TarIndex index) {
  if (!index.parse()) return std::nullopt;
  return index;
}

std::optional<TarIndex> TarIndex::read(MappedFile file, const TarStamp& stamp) {
  return checked(TarIndex(std::move(file), stamp));
}

std::optional<TarIndex> TarIndex::read(std::vector<uint8_t> bytes, const TarStamp& stamp) {
  return checked(TarIndex(std::move(bytes), stamp));
}

std::span<const uint8_t> TarIndex::bytes() const {
  if (const auto* file = std::get_if<MappedFile>(&memory_)) return file->bytes();
  return std::get<std::vector<uint8_t>>(memory_);
}

bool TarIndex::parse() {
  std::span<const uint8_t> rest = bytes();
  const auto headers = take<IndexHeader>(rest, 1);
  if (!headers) return false;
  const IndexHeader& header = headers->front();
  if (header.magic != kIndexMagic || header.stamp != stamp_ || header.checksum != hash(bytes())) {
    return false;
  }
  const auto samples = take<TarSample>(rest, header.count);
  const auto ends = take<uint32_t>(rest, header.count);
  const auto names = take<char>(rest, header.name_bytes);
  const auto problems = take<char>(rest, header.problem_bytes);
  if (!samples || !ends || !names || !problems || !rest.empty()) return false;
  if (!std::ranges::is_sorted(*ends) || (!ends->empty() && ends->back() != names->size()) ||
      !are_valid(*samples, stamp_.bytes, header.largest_label) ||
      header.largest_label > std::numeric_limits<int32_t>::max()) {
    return false;
  }
  samples_ = *samples;
  name_ends_ = *ends;
  names_ = text(*names);
  largest_label_ = static_cast<int32_t>(header.largest_label);
  problem_count_ = header.problem_count;
  for (std::string_view left = text(*problems); !left.empty();) {
    auto where = take_string(left);
    auto what = take_string(left);
    if (!where || !what) return false;
    problems_.push_back({std::move(*where), std::move(*what)});
  }
  return problem_count_ >= std::ssize(problems_) && (problem_count_ == 0) == problems_.empty();
}

std::string_view TarIndex::name(size_t index) const {
  const size_t begin = index == 0 ? 0 : name_ends_[index - 1];
  return names_.substr(begin, name_ends_[index] - begin);
}

bool TarIndexWriter::add(const TarSample& sample, std::string_view name) {
  if (name.size() > std::numeric_limits<uint32_t>::max() - names_.size()) return false;
  names_ += name;
  name_ends_.push_back(static_cast<uint32_t>(names_.size()));
  samples_.push_back(sample);
  largest_label_ = std::max(largest_label_, sample.label);
  return true;
}

void TarIndexWriter::add(TarProblem problem) {
  ++problem_count_;
  if (problems_.size() < kMaxProblems) problems_.push_back(std::move(problem));
}

TarIndex TarIndexWriter::finish(const TarStamp& stamp) const {
  std::string problems;
  for (const TarProblem& problem : problems_) {
    problems.append(without_controls(problem.where)).push_back('\0');
    problems.append(without_controls(problem.what)).push_back('\0');
  }
  IndexHeader header{.magic = kIndexMagic,
                     .checksum = 0,
                     .stamp = stamp,
                     .count = samples_.size(),
                     .name_bytes = names_.size(),
                     .problem_bytes = problems.size(),
                     .problem_count = problem_count_,
                     .largest_label = largest_label_};
  std::vector<uint8_t> bytes;
  bytes.reserve(sizeof header + samples_.size() * (sizeof(TarSample) + sizeof(uint32_t)) +
                names_.size() + problems.size());
  append(bytes, std::span<const IndexHeader>(&header, 1));
  append(bytes, std::span(samples_));
  append(bytes, std::span(name_ends_));
  append(bytes, std::span<const char>(names_));
  append(bytes, std::span<const char>(problems));
  header.checksum = hash(bytes);
  std::memcpy(bytes.data(), &header, sizeof header);
  return TarIndex::read(std::move(bytes), stamp).value();
}

}  // namespace trireme::data
