#include "data/classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/random.h"

namespace trireme::data {
namespace {

constexpr int64_t kMaxListed = int64_t{1} << 28;

std::vector<int64_t> counts_of(const std::vector<int32_t>& labels, int classes) {
  std::vector<int64_t> counts(static_cast<size_t>(classes));
  for (const int32_t label : labels) ++counts[static_cast<size_t>(label)];
  return counts;
}

// Maps random bits to [0, count), uniformly except for a bias of at most count / 2^64.
int64_t below(uint64_t bits, int64_t count) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<int64_t>(
      static_cast<uint64_t>(Wide{bits} * static_cast<uint64_t>(count) >> 64));
}

std::string name_of_class(const Dataset& dataset, size_t label) {
  const std::vector<std::string> names = dataset.class_names();
  return label < names.size() ? fmt::format("{} ('{}')", label, names[label])
                              : std::to_string(label);
}

}  // namespace

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
  for (const int64_t count : counts_of(labels, classes)) {
    if (count == 0) {
      throw ConfigError(field,
                        fmt::format("class {} has no training samples and so no balanced weight; "
                                    "set class_weights to numbers, or use fewer classes",
                                    name_of_class(dataset, weights.size())));
    }
    weights.push_back(
        static_cast<float>(static_cast<double>(labels.size()) /
                           (static_cast<double>(classes) * static_cast<double>(count))));
  }
  return weights;
}

BalancedDraws::BalancedDraws(const std::vector<int32_t>& labels, int classes)
    : samples_(labels.size()) {
  const std::vector<int64_t> counts = counts_of(labels, classes);
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
