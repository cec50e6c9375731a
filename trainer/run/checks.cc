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

// Wiggles of less than this part of the mean never stand out, however steady the losses before.
constexpr double kMinDeviation = 0.01;
constexpr size_t kNamed = 4;  // ranks or parameters that one message lists

// "rank 1", "ranks 0, 2"
std::string named(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string first_few(const std::vector<std::string>& all, const char* separator) {
  const size_t shown = std::min(all.size(), kNamed);
  std::string text = fmt::format("{}", fmt::join(all.begin(), all.begin() + shown, separator));
  if (all.size() > shown) text += fmt::format("{}{} more", separator, all.size() - shown);
  return text;
}

// --- What must be the same on all ranks.

// Running values match only once they have been averaged.
std::vector<const StateArrays::Array*> shared_arrays(const StateArrays& state, bool averaged) {
  std::vector<const StateArrays::Array*> arrays{&state.parameters()};
  for (const StateArrays::Array& array : state.optimizer()) arrays.push_back(&array);
  if (averaged && state.running().elements > 0) arrays.push_back(&state.running());
  return arrays;
}

// One for each array, padding included; read in place on the CPU, from a copy otherwise.
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

// A line for each tensor: its checksum and its name.
std::string checksums_by_name(const StateArrays& state, bool averaged) {
  std::string lines;
  std::vector<float> values;
  for (const StateArrays::Array* array : shared_arrays(state, averaged)) {
    for (const StateArrays::Tensor& tensor : array->tensors) {
      values.resize(static_cast<size_t>(tensor.spec.shape.elements()));
      state.get(tensor, values);
      lines += fmt::format("{:016x} {}\n",
                           XXH3_64bits(values.data(), values.size() * sizeof(float)), tensor.name);
    }
  }
  return lines;
}

// Names in lines that differ between two ranks.
void add_differences(const std::string& a, const std::string& b, std::vector<std::string>& names) {
  std::istringstream left(a);
  std::istringstream right(b);
  for (std::string x, y; std::getline(left, x) && std::getline(right, y);) {
    const std::string name = fmt::format("'{}'", x.substr(x.find(' ') + 1));
    if (x != y && std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
}

// The ranks that disagree with most of them; all where there is no majority.
struct Disagreement {
  std::vector<int> strays;
  int reference = 0;  // one of the others, if there are any
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
      result.strays.push_back(static_cast<int>(rank));
    }
  }
  return result;
}

}  // namespace

std::optional<LossSpikes::Spike> LossSpikes::add(double loss) {
  if (deviations_ <= 0 || !std::isfinite(loss)) return std::nullopt;
  if (losses_.size() < kWindow) {
    losses_.push_back(loss);
    return std::nullopt;
  }
  const double count = static_cast<double>(kWindow);
  const double mean = std::accumulate(losses_.begin(), losses_.end(), 0.0) / count;
  double squares = 0;
  for (double each : losses_) squares += (each - mean) * (each - mean);
  const double deviation = std::max(std::sqrt(squares / count), kMinDeviation * std::abs(mean));
  losses_[next_] = loss;
  next_ = (next_ + 1) % kWindow;
  if (!(loss - mean > deviations_ * deviation)) return std::nullopt;
  return Spike{mean, (loss - mean) / deviation};
}

std::optional<Checks::NotFinite> Checks::look_at(const StepResult& result) {
  if (!result.not_finite) {
    skipped_in_a_row_ = 0;
    return std::nullopt;
  }
  ++skipped_in_a_row_;
  NotFinite found{fmt::format("step {}: {}", result.step + 1, find_not_finite())};
  const bool skips = config_.non_finite() == CheckConfig::SKIP;
  found.ends = !skips || skipped_in_a_row_ >= config_.max_skipped();
  if (skips && found.ends) {
    found.what += fmt::format("; {} steps in a row were left out, which checks.max_skipped ends",
                              skipped_in_a_row_);
  }
  return found;
}

// By all ranks together, the earliest place in the step first: from there it spreads.
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
    return "the loss or a sum of gradients was not finite, yet computed again all numbers of all "
           "ranks are: the sum over ranks overflowed, or memory, a device or a race is at fault";
  }
  std::vector<std::string> lines;
  for (const auto& [what, ranks] : found) {
    lines.push_back(fmt::format("{}: {}", named(ranks), what.second));
  }
  return first_few(lines, "; ");
}

uint64_t Checks::compare_ranks(int64_t steps, bool averaged) const {
  const std::vector<uint64_t> own = checksums(step_, averaged);
  const Disagreement ranks =
      disagreement(all_gather(communicator_, fmt::format("{:016x}", fmt::join(own, " "))));
  if (ranks.strays.empty()) return own.front();
  const auto lines = all_gather(communicator_, checksums_by_name(step_.state(), averaged));
  std::vector<std::string> names;
  for (int rank : ranks.strays) {
    add_differences(lines[static_cast<size_t>(ranks.reference)], lines[static_cast<size_t>(rank)],
                    names);
  }
  const bool one = ranks.strays.size() == 1;
  const std::string who =
      ranks.majority
          ? fmt::format("{} differ{} from the others", named(ranks.strays), one ? "s" : "")
          : fmt::format("{} differ, and which is right cannot be told,", named(ranks.strays));
  throw comm::AgreedError(
      fmt::format("after step {} {} in {}; none of it is saved. Memory or a device is at fault, or "
                  "something computes differently there",
                  steps, who,
                  names.empty() ? "the padding between parameters" : first_few(names, ", ")),
      ExitCode::kFailure, ranks.strays.front());
}

}  // namespace trireme::train
