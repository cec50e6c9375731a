#include "data/files/file_names.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <unordered_set>

#include "core/error.h"
#include "core/parse_number.h"
#include "data/files/file.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNames = 1 << 20;
constexpr int kMaxDepth = 100;

// Expands the braces of a pattern.
class Braces {
 public:
  Braces(std::string_view pattern, const std::string& field) : pattern_(pattern), field_(field) {}

  std::vector<std::string> expand() const { return expand(pattern_); }

 private:
  std::vector<std::string> expand(std::string_view text, int depth = 0) const {
    if (depth > kMaxDepth)
      fail(fmt::format("has more than {} pairs of braces in or behind each other", kMaxDepth));
    const size_t open = text.find_first_of("{}");
    if (open == text.npos) return {std::string(text)};
    if (text[open] == '}') fail("has a } without a {");
    const size_t close = closing(text, open);
    const std::vector<std::string> middles =
        alternatives(text.substr(open + 1, close - open - 1), depth);
    const std::vector<std::string> ends = expand(text.substr(close + 1), depth + 1);
    check_count(middles.size(), ends.size());
    std::vector<std::string> names;
    for (const std::string& middle : middles) {
      for (const std::string& end : ends) {
        names.push_back(std::string(text.substr(0, open)).append(middle).append(end));
      }
    }
    return names;
  }

  size_t closing(std::string_view text, size_t open) const {
    size_t depth = 0;
    for (size_t i = open; i < text.size(); ++i) {
      if (text[i] == '{') ++depth;
      if (text[i] == '}' && --depth == 0) return i;
    }
    fail("has a { without a }");
  }

  // Expands the text between a pair of braces.
  std::vector<std::string> alternatives(std::string_view inside, int depth) const {
    std::vector<std::string> names;
    size_t begin = 0;
    size_t items = 0;
    size_t braces = 0;
    for (size_t i = 0; i <= inside.size(); ++i) {
      if (i < inside.size() && inside[i] == '{') ++braces;
      if (i < inside.size() && inside[i] == '}') --braces;
      if (i < inside.size() && (inside[i] != ',' || braces > 0)) continue;
      if (i == inside.size() && items == 0) return numbers(inside);
      const auto some = expand(inside.substr(begin, i - begin), depth + 1);
      names.insert(names.end(), some.begin(), some.end());
      check_count(names.size(), 1);
      begin = i + 1;
      ++items;
    }
    return names;
  }

  // Expands "007..012". If one of the numbers has leading zeros, all names get the width of the
  // wider one.
  std::vector<std::string> numbers(std::string_view inside) const {
    const size_t dots = std::min(inside.find(".."), inside.size());
    const std::string_view ends[] = {inside.substr(0, dots),
                                     inside.substr(std::min(dots + 2, inside.size()))};
    const auto first = parse_number<uint32_t>(ends[0]);
    const auto last = parse_number<uint32_t>(ends[1]);
    if (!first || !last) {
      fail(fmt::format("has {{{}}}, which is neither a list {{a,b}} nor a range {{0..9}}", inside));
    }
    if (*first > *last) fail(fmt::format("has {{{}}}, which counts down", inside));
    if (*last - *first >= kMaxNames) check_count(kMaxNames, 2);
    size_t width = 0;
    for (const std::string_view end : ends) {
      if (end.size() > 1 && end[0] == '0') width = std::max(ends[0].size(), ends[1].size());
    }
    std::vector<std::string> names;
    for (int64_t i = *first; i <= *last; ++i) names.push_back(fmt::format("{:0{}}", i, width));
    return names;
  }

  void check_count(size_t a, size_t b) const {
    if (a > kMaxNames / b) fail(fmt::format("expands to more than {} files", kMaxNames));
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw ConfigError(field_, fmt::format("'{}' {}", pattern_, why));
  }

  std::string_view pattern_;
  const std::string& field_;
};

bool is_glob(std::string_view name) { return name.find_first_of("*?[") != name.npos; }

// Escapes special characters, so that a pattern matches them literally.
std::string escaped(const std::string& name) {
  std::string out;
  for (const char c : name) {
    if (std::strchr("*?[]\\", c)) out += '\\';
    out += c;
  }
  return out;
}

// Returns the files that match the pattern, sorted by bytes (glob itself sorts by the locale).
std::vector<std::string> matches(const fs::path& folder, const std::string& pattern) {
  const std::string full = (fs::path(escaped(folder.string())) / pattern).string();
  glob_t found{};
  const int status = glob(full.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  const std::string shown = (folder / pattern).string();
  if (status == GLOB_NOMATCH) throw DataError(shown, "matches no files");
  if (status != 0) throw DataError(shown, "the folder cannot be read");
  std::ranges::sort(paths);
  return paths;
}

// Checks all files, so that the message can state how many are missing.
void check_exist(const std::vector<std::string>& paths, const std::string& field) {
  std::vector<std::string> missing;
  for (const std::string& path : paths) {
    std::error_code ignored;  // inaccessible files count as missing
    if (!fs::exists(path, ignored)) missing.push_back(path);
  }
  if (missing.empty()) return;
  throw DataError(missing.front(),
                  fmt::format("does not exist ({} of the {} files of {} are missing)",
                              missing.size(), paths.size(), field));
}

void check_different(const std::vector<std::string>& paths, const std::string& field) {
  std::unordered_set<std::string> seen;
  for (const std::string& path : paths) {
    if (!seen.insert(fs::path(path).lexically_normal().string()).second) {
      throw ConfigError(field, fmt::format("lists '{}' twice", path));
    }
  }
}

}  // namespace

std::vector<std::string> expand_names(
    const std::string& root, const google::protobuf::RepeatedPtrField<std::string>& patterns,
    const std::string& field) {
  if (patterns.empty()) throw ConfigError(field, "is empty; list at least one file");
  check_root(root);
  std::vector<std::string> paths;
  for (const std::string& pattern : patterns) {
    if (pattern.empty()) throw ConfigError(field, "contains an empty file name");
    for (const std::string& name : Braces(pattern, field).expand()) {
      if (is_glob(name)) {
        const auto found = matches(root, name);
        paths.insert(paths.end(), found.begin(), found.end());
      } else {
        paths.push_back((fs::path(root) / name).string());
      }
    }
  }
  check_different(paths, field);
  check_exist(paths, field);
  return paths;
}

}  // namespace trireme::data
