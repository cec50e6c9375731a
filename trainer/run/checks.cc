#include "trainer/run/checks.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <sstream>
#include <utility>

#include "comm/control.h"

namespace trireme::train {
namespace {

// Lower limit of the standard deviation as a fraction of the mean, so that small fluctuations after
// very steady losses are not reported.
constexpr double kMinRelativeStddev = 0.01;
// Likewise, as a fraction of the mean of the first losses, so that the noise of a run that has
// converged to 0 is not reported.
constexpr double kMinInitialStddev = 1e-5;
constexpr size_t kMaxListed = 4;  // ranks or parameters that one message lists

// Returns "rank 1" or "ranks 0, 2" or, with roles, "ranks 0 (stage 0, replica 0), 2 (...)".
std::string rank_list(const std::vector<int>& ranks, const comm::Ledger& ledger) {
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(ledger.with_role(rank));
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(names, ", "));
}

std::string first_few(const std::vector<std::string>& all, const char* separator) {
  const size_t shown = std::min(all.size(), kMaxListed);
  std::string text = fmt::format("{}", fmt::join(all.begin(), all.begin() + shown, separator));
  if (all.size() > shown) text += fmt::format("{}{} more", separator, all.size() - shown);
  return text;
}

// Returns the arrays that must be identical on all ranks. Running statistics are only identical
// after they have been averaged.
std::vector<const StateArrays::Array*> shared_arrays(const StateArrays& state, bool averaged) {
  std::vector<const StateArrays::Array*> arrays{&state.parameters()};
  for (const StateArrays::Array& array : state.optimizer()) {
    if (!array.sharded) arrays.push_back(&array);
  }
  if (averaged && state.running_stats().elements > 0) arrays.push_back(&state.running_stats());
  return arrays;
}

// Returns a checksum of each array, including padding.
std::vector<uint64_t> checksums(Step& step, bool averaged) {
  Device& device = step.backend().device();
  std::vector<uint64_t> all;
  for (const StateArrays::Array* array : shared_arrays(step.state(), averaged)) {
    const size_t bytes = static_cast<size_t>(array->elements) * sizeof(float);
    if (device.kind() == DeviceKind::kCpu) {
      all.push_back(XXH3_64bits(array->data, bytes));
      continue;
    }
    std::vector<std::byte> copy(bytes);
    device.copy(copy.data(), array->data, bytes, step.stream());
    step.stream().synchronize();
    all.push_back(XXH3_64bits(copy.data(), bytes));
  }
  return all;
}

// Returns a line for each tensor: its checksum and its name.
std::string checksums_by_name(const StateArrays& state, bool averaged) {
  std::string lines;
  std::vector<float> values;
  for (const StateArrays::Array* array : shared_arrays(state, averaged)) {
    for (const StateArrays::Tensor& tensor : array->tensors) {
      if (!state.has(tensor)) continue;  // another stage has it
      values.resize(static_cast<size_t>(tensor.spec.shape.elements()));
      state.get_own(tensor, values);
      lines += fmt::format("{:016x} {}\n",
                           XXH3_64bits(values.data(), values.size() * sizeof(float)), tensor.name);
    }
  }
  return lines;
}

// Adds the names of the lines that differ between two results of checksums_by_name().
void add_differences(const std::string& a, const std::string& b, std::vector<std::string>& names) {
  std::istringstream left(a);
  std::istringstream right(b);
  for (std::string x, y; std::getline(left, x) && std::getline(right, y);) {
    const std::string name = fmt::format("'{}'", x.substr(x.find(' ') + 1));
    if (x != y && std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
}

// How the ranks' texts differ.
struct Disagreement {
  std::vector<int> outliers;  // ranks that differ from the majority, or all if there is no majority
  int reference = 0;          // a rank of the majority, or 0
  bool majority = false;
};

Disagreement disagreement(const std::vector<std::string>& texts) {
  std::map<std::string, std::vector<int>> groups;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    groups[texts[rank]].push_back(static_cast<int>(rank));
  }
  const auto largest =
      std::ranges::max_element(groups, {}, [](const auto& group) { return group.second.size(); });
  Disagreement result;
  result.majority = 2 * largest->second.size() > texts.size();
  result.reference = result.majority ? largest->second.front() : 0;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (!result.majority || texts[rank] != largest->first) {
      result.outliers.push_back(static_cast<int>(rank));
    }
  }
  return result;
}

// Throws AgreedError on all ranks if the `replicas` of a stage differ.
void require_equal(comm::Communicator& communicator, const StateArrays& state,
                   const Disagreement& found, const std::vector<int>& replicas, int64_t steps,
                   bool averaged) {
  if (found.outliers.empty()) return;
  const auto lines = all_gather(communicator, checksums_by_name(state, averaged));
  const auto rank_of = [&](int replica) { return replicas[static_cast<size_t>(replica)]; };
  const auto lines_of = [&](int replica) { return lines[static_cast<size_t>(rank_of(replica))]; };
  std::vector<std::string> names;
  std::vector<int> ranks;
  for (const int replica : found.outliers) {
    add_differences(lines_of(found.reference), lines_of(replica), names);
    ranks.push_back(rank_of(replica));
  }
  const bool one = ranks.size() == 1;
  const std::string list = rank_list(ranks, communicator.ledger());
  const std::string who = found.majority
                              ? fmt::format("{} differ{} from the others", list, one ? "s" : "")
                              : fmt::format("{} differ, without a majority that agrees,", list);
  throw comm::AgreedError(
      fmt::format("after step {} {} in {}; nothing of it was saved. The cause is faulty memory, a "
                  "faulty device or an operation that computes differently there",
                  steps, who,
                  names.empty() ? "the padding between parameters" : first_few(names, ", ")),
      ExitCode::kFailure, ranks.front());
}

}  // namespace

std::optional<LossSpikes::Spike> LossSpikes::add(double loss) {
  if (stddevs_ <= 0 || !std::isfinite(loss)) return std::nullopt;
  if (losses_.size() < kWindow) {
    losses_.push_back(loss);
    first_mean_ += loss / static_cast<double>(kWindow);
    return std::nullopt;
  }
  const double count = static_cast<double>(kWindow);
  const double mean = std::accumulate(losses_.begin(), losses_.end(), 0.0) / count;
  double squares = 0;
  for (double each : losses_) squares += (each - mean) * (each - mean);
  const double stddev = std::max({std::sqrt(squares / count), kMinRelativeStddev * std::abs(mean),
                                  kMinInitialStddev * std::abs(first_mean_)});
  losses_[next_] = loss;
  next_ = (next_ + 1) % kWindow;
  if (!(loss - mean > stddevs_ * stddev)) return std::nullopt;
  return Spike{mean, (loss - mean) / stddev};
}

std::optional<Checks::NotFinite> Checks::check_result(const StepResult& result) {
  if (!result.not_finite) {
    consecutive_skips_ = 0;
    return std::nullopt;
  }
  ++consecutive_skips_;
  const std::string what =
      result.overflowing_norm > 0
          ? fmt::format(
                "the norm of the gradient, {:.2g}, is finite, but its square and so the "
                "optimizer's second moment would not be",
                result.overflowing_norm)
          : find_not_finite();
  NotFinite found{fmt::format("step {}: {}", result.step + 1, what)};
  const bool skips = config_.non_finite() == CheckConfig::SKIP;
  found.ends_run = !skips || consecutive_skips_ >= config_.max_skipped();
  if (skips && found.ends_run) {
    found.what += fmt::format("; {} steps in a row were skipped, the limit of checks.max_skipped",
                              consecutive_skips_);
  }
  return found;
}

// Returns the first non-finite values of all ranks, the earliest in the step first, since later
// ones follow from it. Collective.
std::string Checks::find_not_finite() const {
  const std::optional<Step::NotFinite> own = step_.find_not_finite();
  const auto texts =
      all_gather(communicator_, own ? fmt::format("{} {}", own->when, own->what) : "");
  std::map<std::pair<int64_t, std::string>, std::vector<int>> found;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty()) continue;
    const size_t space = texts[rank].find(' ');
    found[{std::stoll(texts[rank]), texts[rank].substr(space + 1)}].push_back(
        static_cast<int>(rank));
  }
  if (found.empty()) {
    return "the loss or a sum of gradients was not finite, but recomputing the step gave finite "
           "values on all ranks: the sum over ranks overflowed, or there is a hardware fault or a "
           "race";
  }
  std::vector<std::string> lines;
  for (const auto& [what, ranks] : found) {
    lines.push_back(fmt::format("{}: {}", rank_list(ranks, communicator_.ledger()), what.second));
  }
  return first_few(lines, "; ");
}

uint64_t Checks::compare_ranks(int64_t steps, bool averaged) const {
  step_.gather_parameters();
  const std::vector<uint64_t> own = checksums(step_, averaged);
  const auto texts = all_gather(communicator_, fmt::format("{:016x}", fmt::join(own, " ")));
  const Grid& grid = step_.stage().grid;
  std::string all_stages;
  for (int stage = 0; stage < grid.stages; ++stage) {
    std::vector<int> replicas;
    std::vector<std::string> their_texts;
    for (int replica = 0; replica < grid.replicas; ++replica) {
      replicas.push_back(grid.rank_of(stage, replica));
      their_texts.push_back(texts[static_cast<size_t>(replicas.back())]);
    }
    require_equal(communicator_, step_.state(), disagreement(their_texts), replicas, steps,
                  averaged);
    all_stages += their_texts.front();
  }
  return grid.has_pipeline() ? XXH3_64bits(all_stages.data(), all_stages.size()) : own.front();
}

}  // namespace trireme::train
