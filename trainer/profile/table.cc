#include "trainer/profile/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "core/text.h"

namespace trireme::train {
namespace {

constexpr size_t kSlowestLayers = 10;

// Returns the time that `amount` takes at the peak rate, in percent of `seconds`; "-" if unknown.
std::string percent_of_peak(double amount, double peak, double seconds) {
  if (amount <= 0 || peak <= 0 || seconds <= 0) return "-";
  return fmt::format("{:.1f}%", percent(amount / peak, seconds));
}

std::string phase_line(const std::string& name, double seconds, double step) {
  return fmt::format("{:<24} {:>11.3f} {:>6.1f}%\n", name, 1e3 * seconds, percent(seconds, step));
}

// Widths of the text columns.
struct Columns {
  size_t name = 0;
  size_t kind = 0;
};

std::string layer_line(const LayerCost& layer, double step, const Peaks& peaks,
                       const Columns& columns) {
  return fmt::format("{:<{}} {:<{}} {:>10.3f} {:>11.3f} {:>6.1f}% {:>9} {:>10} {:>10} {:>8}\n",
                     layer.name, columns.name, layer.kind, columns.kind, 1e3 * layer.forward,
                     1e3 * layer.backward, percent(layer.seconds(), step),
                     format_count(layer.flops), format_bytes(layer.bytes),
                     percent_of_peak(layer.flops, peaks.flops, layer.seconds()),
                     percent_of_peak(layer.bytes, peaks.bytes, layer.seconds()));
}

LayerCost sum_of(const std::vector<LayerCost>& layers, size_t first) {
  LayerCost sum;
  for (size_t i = first; i < layers.size(); ++i) {
    sum.forward += layers[i].forward;
    sum.backward += layers[i].backward;
    sum.flops += layers[i].flops;
    sum.bytes += layers[i].bytes;
  }
  return sum;
}

std::string step_table(const StepCosts& costs) {
  std::string text = fmt::format("{:<24} {:>11} {:>7}\n", "", "ms", "step");
  for (const PhaseCost& phase : costs.phases) {
    text += phase_line(phase.name, phase.seconds, costs.step);
  }
  text += phase_line("not accounted for", costs.unaccounted(), costs.step);
  return text + phase_line("step", costs.step, costs.step);
}

std::string layer_table(const StepCosts& costs, const Peaks& peaks) {
  const size_t shown = std::min(kSlowestLayers, costs.layers.size());
  std::vector<LayerCost> rows(costs.layers.begin(),
                              costs.layers.begin() + static_cast<std::ptrdiff_t>(shown));
  if (shown < costs.layers.size()) {
    rows.push_back(sum_of(costs.layers, shown));
    rows.back().name = fmt::format("{} others", costs.layers.size() - shown);
  }
  rows.push_back(sum_of(costs.layers, 0));
  rows.back().name = "all layers";
  constexpr std::string_view kHead = "slowest layers";
  Columns columns{.name = kHead.size()};
  for (const LayerCost& row : rows) {
    columns.name = std::max(columns.name, row.name.size());
    columns.kind = std::max(columns.kind, row.kind.size());
  }
  std::string text = fmt::format("{:<{}} {:<{}} {:>10} {:>11} {:>7} {:>9} {:>10} {:>10} {:>8}\n",
                                 kHead, columns.name, "", columns.kind, "forward ms", "backward ms",
                                 "step", "FLOP", "bytes", "arithmetic", "memory");
  for (const LayerCost& row : rows) text += layer_line(row, costs.step, peaks, columns);
  return text;
}

}  // namespace

double StepCosts::unaccounted() const {
  double rest = step;
  for (const PhaseCost& phase : phases) rest -= phase.seconds;
  return rest;
}

LayerCost& CostSum::layer(const EventDescriptor& descriptor) {
  const auto [found, added] = by_name_.try_emplace(descriptor.name, layers_.size());
  if (added) layers_.push_back({.name = descriptor.name, .kind = descriptor.args.at("kind")});
  return layers_[found->second];
}

PhaseCost& CostSum::phase(const std::string& name) {
  const auto found = std::ranges::find(phases_, name, &PhaseCost::name);
  return found != phases_.end() ? *found : phases_.emplace_back(PhaseCost{name, 0});
}

void CostSum::add(const RankTrace& trace) {
  int64_t begin = std::numeric_limits<int64_t>::max();
  int64_t end = std::numeric_limits<int64_t>::min();
  for (const TraceEvent& event : trace.events) {
    const EventDescriptor& descriptor = trace.descriptors.at(static_cast<size_t>(event.descriptor));
    const double seconds = 1e-9 * static_cast<double>(event.duration);
    if (descriptor.category == kStepCategory) {
      ++steps_;
      begin = std::min(begin, event.begin);
      end = std::max(end, event.begin + event.duration);
    } else if (descriptor.category == kPhaseCategory) {
      phase(descriptor.name).seconds += seconds;
    } else if (descriptor.category == kForwardCategory ||
               descriptor.category == kBackwardCategory) {
      LayerCost& cost = layer(descriptor);
      (descriptor.category == kForwardCategory ? cost.forward : cost.backward) += seconds;
      cost.flops += descriptor.args.at("FLOP").get<double>();
      cost.bytes += descriptor.args.at("bytes").get<double>();
    }
  }
  ++ranks_;
  if (end > begin) seconds_ += 1e-9 * static_cast<double>(end - begin);
}

StepCosts CostSum::mean() const {
  const double count = static_cast<double>(std::max<int64_t>(1, steps_));
  StepCosts costs{ranks_, steps_ / std::max(1, ranks_), seconds_ / count, phases_, layers_};
  for (PhaseCost& phase : costs.phases) phase.seconds /= count;
  for (LayerCost& layer : costs.layers) {
    for (double* each : {&layer.forward, &layer.backward, &layer.flops, &layer.bytes}) {
      *each /= count;
    }
  }
  std::ranges::stable_sort(costs.layers, std::greater(), &LayerCost::seconds);
  return costs;
}

std::string cost_table(const std::vector<StepCosts>& stages, const Peaks& peaks,
                       const std::string& title) {
  std::string text;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const StepCosts& costs = stages[stage];
    text += fmt::format("{}: means of {} step{} on {} rank{}{}\n\n", title, costs.steps,
                        costs.steps == 1 ? "" : "s", costs.ranks, costs.ranks == 1 ? "" : "s",
                        stages.size() > 1 ? fmt::format(" of stage {}", stage) : "");
    text += step_table(costs) + "\n" + layer_table(costs, peaks) + "\n";
  }
  text += fmt::format(
      "arithmetic, memory: the part of a layer's time that its FLOP would take at {}FLOP/s and "
      "its bytes at {}/s,\nthe peaks measured on each rank with all ranks running at once. "
      "The bytes count every tensor of every operation,\nso layers whose tensors stay in caches "
      "may take less time than memory would.\nnot accounted for: between steps, where records, "
      "evaluations and checkpoints are.\n",
      format_count(peaks.flops), format_bytes(peaks.bytes));
  return text;
}

}  // namespace trireme::train
