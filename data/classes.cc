#include "data/classes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"

namespace trireme::data {
namespace {

constexpr int64_t kMaxListed = int64_t{1} << 28;

// Maps random bits to [0, count), uniformly except for a bias of at most count / 2^64.
int64_t below(uint64_t bits, int64_t count) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<int64_t>(
      static_cast<uint64_t>(Wide{bits} * static_cast<uint64_t>(count) >> 64));
}

std::string name_of_class(const std::vector<std::string>& names, size_t label) {
  return label < names.size() ? fmt::format("{} ('{}')", label, printable(names[label]))
                              : std::to_string(label);
}

// Returns the name in upper case and without blanks.
std::string plain(const std::string& name) {
  std::string text = upper(name);
  std::erase_if(text, [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); });
  return text;
}

// Returns the number of samples of each class; empty if it is not known without reading them.
std::vector<int64_t> known_counts(const Dataset& dataset) {
  const int classes = dataset.spec().classes;
  if (classes < 1 || dataset.size() > kMaxListed) return {};
  std::vector<int32_t> labels = dataset.labels();
  std::erase_if(labels, [&](int32_t label) { return label < 0 || label >= classes; });
  if (labels.empty()) return {};
  return class_counts(labels, classes);
}

}  // namespace

std::vector<int64_t> class_counts(std::span<const int32_t> labels, int classes) {
  std::vector<int64_t> counts(static_cast<size_t>(classes));
  for (const int32_t label : labels) ++counts[static_cast<size_t>(label)];
  return counts;
}

std::string empty_classes(std::span<const int64_t> counts, const std::vector<std::string>& names,
                          const std::string& part) {
  std::vector<std::string> empty;
  for (size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] == 0) empty.push_back(name_of_class(names, c));
  }
  if (empty.empty()) return "";
  if (empty.size() == 1) return fmt::format("class {} has no {} samples", empty[0], part);
  constexpr size_t kShown = 10;
  const size_t shown = std::min(empty.size(), kShown);
  const std::string more =
      shown < empty.size() ? fmt::format(" and {} more", empty.size() - shown) : "";
  return fmt::format("{} of {} classes have no {} samples: {}{}", empty.size(), counts.size(), part,
                     fmt::join(empty.begin(), empty.begin() + static_cast<ptrdiff_t>(shown), ", "),
                     more);
}

std::string similar_classes(const std::vector<std::string>& names) {
  std::unordered_map<std::string, size_t> known;
  std::string first;
  int64_t more = 0;
  for (size_t c = 0; c < names.size(); ++c) {
    const auto [same, added] = known.emplace(plain(names[c]), c);
    if (added) continue;
    if (!first.empty()) {
      ++more;
      continue;
    }
    first = fmt::format("classes {} and {} have names that differ only in case or blanks",
                        name_of_class(names, same->second), name_of_class(names, c));
  }
  return more == 0 ? first : fmt::format("{}, and so do {} more", first, more);
}

std::vector<std::string> class_problems(const DataConfig& config, const Dataset& training,
                                        const Dataset& evaluation) {
  if (config.has_synthetic()) return {};
  const std::vector<int64_t> trained = known_counts(training);
  if (trained.empty()) return {};
  const std::vector<std::string> names = training.class_names();
  std::string empty = empty_classes(trained, names, "training");
  if (!empty.empty() && names.empty())
    empty += "; labels are expected to be 0, 1, 2, ... without gaps";
  std::vector<int64_t> evaluated = known_counts(evaluation);
  for (size_t c = 0; c < evaluated.size(); ++c) {
    if (trained.at(c) == 0) evaluated[c] = 1;  // is in the first line
  }
  std::string unmeasured = empty_classes(evaluated, names, "evaluation");
  if (!unmeasured.empty() && config.has_holdout()) {
    unmeasured += "; data.holdout_stratified: true holds out some of each class";
  }
  std::vector<std::string> lines{empty, unmeasured, similar_classes(names)};
  std::erase(lines, "");
  return lines;
}

std::vector<int32_t> labels_for(const Dataset& dataset, const std::string& field) {
  if (dataset.spec().classes < 1) {
    throw ConfigError(field, "needs samples with class labels, not " + dataset.description());
  }
  if (dataset.size() > kMaxListed) {
    throw ConfigError(field, fmt::format("needs a list of all labels, which is limited to {} "
                                         "samples: {}",
                                         kMaxListed, dataset.description()));
  }
  std::vector<int32_t> labels = dataset.labels();
  if (labels.empty()) {
    throw ConfigError(field,
                      "needs samples with one label each that is known without reading "
                      "them, not " +
                          dataset.description());
  }
  const auto wrong = std::ranges::find_if_not(
      labels, [&](int32_t label) { return label >= 0 && label < dataset.spec().classes; });
  if (wrong != labels.end()) {
    throw DataError(dataset.where(wrong - labels.begin()),
                    fmt::format("label {} is not in [0, {})", *wrong, dataset.spec().classes));
  }
  return labels;
}

std::vector<float> balanced_weights(const Dataset& dataset, const std::string& field) {
  const int classes = dataset.spec().classes;
  const std::vector<int32_t> labels = labels_for(dataset, field);
  std::vector<float> weights;
  for (const int64_t count : class_counts(labels, classes)) {
    if (count == 0) {
      throw ConfigError(field,
                        fmt::format("class {} has no training samples and so no balanced weight; "
                                    "set class_weights to numbers, or use fewer classes",
                                    name_of_class(dataset.class_names(), weights.size())));
    }
    weights.push_back(
        static_cast<float>(static_cast<double>(labels.size()) /
                           (static_cast<double>(classes) * static_cast<double>(count))));
  }
  return weights;
}

BalancedDraws::BalancedDraws(const std::vector<int32_t>& labels, int classes)
    : samples_(labels.size()) {
  const std::vector<int64_t> counts = class_counts(labels, classes);
  std::vector<int64_t> next(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), next.begin(), int64_t{0});
  for (size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] > 0) begins_.push_back(next[c]);
  }
  begins_.push_back(std::ssize(labels));
  for (size_t i = 0; i < labels.size(); ++i) {
    samples_[static_cast<size_t>(next[static_cast<size_t>(labels[i])]++)] = static_cast<int64_t>(i);
  }
}

int64_t BalancedDraws::operator()(uint64_t seed, uint64_t epoch, int64_t position) const {
  const Random4 r =
      Random(seed, RandomPurpose::kSampling, epoch).four(static_cast<uint64_t>(position));
  const auto of_class =
      static_cast<size_t>(below(uint64_t{r[1]} << 32 | r[0], std::ssize(begins_) - 1));
  const int64_t begin = begins_[of_class];
  const int64_t place = begin + below(uint64_t{r[3]} << 32 | r[2], begins_[of_class + 1] - begin);
  return samples_[static_cast<size_t>(place)];
}

}  // namespace trireme::data
