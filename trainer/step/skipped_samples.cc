#include "trainer/step/skipped_samples.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "comm/control.h"

namespace trireme::train {
namespace {

// Describes the datasets: their counts and, after a semicolon, the first bad record.
std::string describe_samples(const data::Dataset& training, const data::Dataset& evaluation) {
  const data::BadRecords training_bad = training.bad_records();
  const data::BadRecords evaluation_bad = evaluation.bad_records();
  std::string text = fmt::format(
      "{} training samples ({} bad records skipped) and {} evaluation samples ({} skipped)",
      training.size(), training_bad.count, evaluation.size(), evaluation_bad.count);
  const data::BadRecords& shown = training_bad.first.empty() ? evaluation_bad : training_bad;
  if (!shown.first.empty()) text += "; the first: " + shown.first.front();
  return text;
}

std::string counts_of(const std::string& text) { return text.substr(0, text.find(';')); }

}  // namespace

void require_same_samples(comm::Communicator& communicator, const data::Dataset& training,
                          const data::Dataset& evaluation) {
  const auto texts = all_gather(communicator, describe_samples(training, evaluation));
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (counts_of(texts[rank]) == counts_of(texts[0])) continue;
    throw comm::AgreedError(
        fmt::format("the ranks do not see the same data: rank 0 has {}; rank {} has {}", texts[0],
                    rank, texts[rank]),
        ExitCode::kBadData, 0);
  }
}

data::BadRecords bad_records_at_open(const data::Dataset& training, const data::Dataset& evaluation,
                                     bool holdout) {
  data::BadRecords bad = training.bad_records();
  if (holdout) return bad;
  const data::BadRecords more = evaluation.bad_records();
  bad.count += more.count;
  bad.first.insert(bad.first.end(), more.first.begin(), more.first.end());
  return bad;
}

int64_t skipped_samples(int64_t expected, float counted) {
  return counted >= 0 && counted < static_cast<float>(expected) ? expected - std::llround(counted)
                                                                : 0;
}

void require_few_bad_samples(const data::Dataset& dataset, int64_t count,
                             std::optional<int64_t> limit, const std::string& first) {
  if (!limit || count == 0) return;
  const int64_t opened = dataset.bad_records().count;
  if (count <= *limit - std::min(opened, *limit)) return;
  throw comm::AgreedError(fmt::format("{}: {}", dataset.description(),
                                      data::too_many_bad_records(count + opened, *limit, first)),
                          ExitCode::kBadData, 0);
}

std::vector<std::string> gather_skip_reasons(comm::Communicator& communicator,
                                             const std::vector<std::string>& own) {
  const auto texts = all_gather(communicator, fmt::format("{}", fmt::join(own, "\n")));
  std::vector<std::string> reasons;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    std::istringstream lines(texts[rank]);
    for (std::string line; std::getline(lines, line);) {
      reasons.push_back(fmt::format("rank {}: {}", rank, line));
    }
  }
  return reasons;
}

}  // namespace trireme::train
