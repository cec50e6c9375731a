// Where the time of profiled steps went, as a table for people.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/profile/options.h"
#include "trainer/profile/trace_event.h"

namespace trireme::train {

// Means over steps and ranks, for one step of one rank. Times in seconds.
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
  double step = 0;                // from its beginning to that of the next
  std::vector<PhaseCost> phases;  // in the order in which a step goes through them
  std::vector<LayerCost> layers;  // dearest first
  double unaccounted() const;     // in none of the phases: between steps
};

// Adds up traces of the same steps.
class CostSum {
 public:
  void add(const RankTrace& trace);
  StepCosts mean() const;

 private:
  LayerCost& layer(const TraceSubject& subject);
  PhaseCost& phase(const std::string& name);

  int ranks_ = 0;
  int64_t steps_ = 0;  // of all ranks
  double seconds_ = 0;
  std::vector<PhaseCost> phases_;
  std::vector<LayerCost> layers_;
  std::map<std::string, size_t> by_name_;  // in layers_
};

// The ten dearest layers beside what they could take at least, and what a step is made of. `title`
// says what was profiled.
std::string cost_table(const StepCosts& costs, const Peaks& peaks, const std::string& title);

}  // namespace trireme::train
