#include "data/table_columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.h"
#include "core/text.h"

namespace trireme::data {
namespace {

// Of many unknown columns, only the first are listed anyway.
constexpr size_t kMaxSuggested = 100;

constexpr size_t kMaxNamesShown = 8;  // in messages

std::string listed(const std::vector<std::string>& all, std::string_view separator) {
  const size_t shown = std::min(all.size(), kMaxNamesShown);
  std::string text =
      fmt::format("{}", fmt::join(all.begin(), all.begin() + ptrdiff_t(shown), separator));
  if (shown < all.size()) text += fmt::format("{}and {} more", separator, all.size() - shown);
  return text;
}

// Returns the index of each column by name. Throws DataError if names are duplicate.
std::map<std::string, int64_t> index_of(std::span<const std::string> names,
                                        const std::string& path) {
  std::map<std::string, int64_t> index;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto [found, is_new] = index.emplace(names[i], i);
    if (is_new) continue;
    throw DataError(path, fmt::format("has two columns named '{}', {} and {}; rename or remove one",
                                      names[i], found->second + 1, i + 1));
  }
  return index;
}

MatchedColumns match_names(const TableColumns& trained, std::span<const std::string> names,
                           const std::string& path, Labels labels) {
  std::map<std::string, int64_t> unknown = index_of(names, path);
  std::vector<std::string> missing;
  const auto take = [&](int64_t column) {
    const std::string& name = trained.names[column];
    const auto found = unknown.find(name);
    if (found == unknown.end()) {
      missing.push_back(name);
      return int64_t{-1};
    }
    const int64_t index = found->second;
    unknown.erase(found);
    return index;
  };
  MatchedColumns matched;
  for (const int64_t column : trained.features()) matched.features.push_back(take(column));
  const size_t features_missing = missing.size();
  for (const int64_t column : trained.labels) matched.labels.push_back(take(column));
  if (labels == Labels::kOptional && missing.size() > features_missing) {
    missing.resize(features_missing);
    matched.labels.clear();
  }
  if (missing.empty() && unknown.empty()) return matched;
  std::vector<std::string> problems;
  for (const std::string& name : missing) problems.push_back(fmt::format("no column '{}'", name));
  for (const auto& [name, column] : unknown) {
    const std::string meant = problems.size() < kMaxSuggested ? nearest(name, missing) : "";
    problems.push_back(
        fmt::format("an unknown column '{}'{}", name,
                    meant.empty() ? "" : fmt::format(" (did you mean '{}'?)", meant)));
  }
  throw DataError(
      path,
      fmt::format("does not have the columns of the training table: {}. The training table has: {}",
                  listed(problems, "; "), listed(trained.names, ", ")));
}

MatchedColumns match_positions(const TableColumns& trained, int64_t count, const std::string& path,
                               Labels labels) {
  const std::vector<int64_t> features = trained.features();
  if (count == trained.count) return {features, trained.labels};
  if (labels == Labels::kOptional && count == std::ssize(features)) {
    MatchedColumns matched;
    matched.features.resize(features.size());
    std::iota(matched.features.begin(), matched.features.end(), int64_t{0});
    return matched;
  }
  throw DataError(path,
                  fmt::format("has {} columns; the training table has {}{}. Without a header in "
                              "both, columns are matched by position",
                              count, trained.count,
                              labels == Labels::kOptional
                                  ? fmt::format(", {} of them features", features.size())
                                  : ""));
}

}  // namespace

std::vector<int64_t> TableColumns::features() const {
  std::vector<int64_t> columns;
  for (int64_t column = 0; column < count; ++column) {
    if (std::ranges::find(labels, column) == labels.end()) columns.push_back(column);
  }
  return columns;
}

std::vector<std::string> TableColumns::label_names() const {
  std::vector<std::string> label_names;
  if (names.empty()) return label_names;
  for (const int64_t column : labels) label_names.push_back(names[column]);
  return label_names;
}

MatchedColumns match_columns(const TableColumns& trained, std::span<const std::string> names,
                             int64_t count, const std::string& path, Labels labels) {
  if (!names.empty() && !trained.names.empty()) return match_names(trained, names, path, labels);
  index_of(names, path);
  return match_positions(trained, count, path, labels);
}

}  // namespace trireme::data
