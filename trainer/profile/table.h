// Summarizes the time of profiled steps as a text table.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/profile/options.h"
#include "trainer/profile/trace_event.h"

namespace trireme::train {

// Means over steps and ranks, per step and rank. Times are in seconds.
struct LayerCost {
  std::string name;
  std::string kind;
  double forward = 0;
  double backward = 0;
  double flops = 0;
  double bytes = 0;
  double seconds() const { return forward + backward; }
};
struct PhaseCost {
  std::string name;
  double seconds = 0;
};
struct StepCosts {
  int ranks = 0;
  int64_t steps = 0;
  double step = 0;                // from its beginning to that of the next step
  std::vector<PhaseCost> phases;  // in the order of the step
  std::vector<LayerCost> layers;  // slowest first
  double unaccounted() const;     // time outside of all phases, between steps
};

// Sums the traces of several ranks over the same steps.
class CostSum {
 public:
  void add(const RankTrace& trace);
  StepCosts mean() const;

 private:
  LayerCost& layer(const EventDescriptor& descriptor);
  PhaseCost& phase(const std::string& name);

  int ranks_ = 0;
  int64_t steps_ = 0;  // total over all ranks
  double seconds_ = 0;
  std::vector<PhaseCost> phases_;
  std::vector<LayerCost> layers_;
  std::map<std::string, size_t> by_name_;  // index into layers_
};

// Returns a table of the phases of a step and of its ten slowest layers, with their times relative
// to the peaks, for each pipeline stage. `title` describes the profiled run.
std::string cost_table(const std::vector<StepCosts>& stages, const Peaks& peaks,
                       const std::string& title);

}  // namespace trireme::train
