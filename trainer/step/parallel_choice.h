// Predicts the time of a training step with different numbers of pipeline stages, and chooses what
// the configuration leaves open (parallel.stages: 0, parallel.neighbors: AUTO).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "model/graph.h"
#include "model/program.h"
#include "ops/backend.h"
#include "trainer/config/config.h"
#include "trainer/config/grid.h"
#include "trainer/step/batch_plan.h"
#include "trainer/step/layer_costs.h"
#include "trainer/step/stage_plan.h"
#include "trainer/step/training_program.h"

namespace trireme::train {

// Where the ranks of a run are.
struct Hosts {
  std::vector<int> of_rank;
  double bytes_per_second = 0;  // between two hosts, in each direction
};
// Returns hosts with equally many consecutive ranks each.
Hosts even_hosts(int ranks, int hosts, double bytes_per_second);

struct StagePrediction {
  int begin = 0, end = 0;     // nodes of the graph
  double seconds = 0;         // forward and backward pass of a micro-batch
  size_t bytes = 0;           // memory, without recomputation
  size_t forward_bytes = 0;   // sent to the next stage, for a micro-batch
  size_t backward_bytes = 0;  // received from the next stage
  size_t trained_bytes = 0;   // of parameters, and so of gradients
};

struct LayoutPrediction {
  Grid grid;  // of rank 0
  BatchPlan batch;
  std::vector<StagePrediction> stages;
  bool measured = false;  // otherwise the times of layers are estimated
  double transfers = 0;   // seconds, of the slowest transfer of a micro-batch between stages
  double sums = 0;        // seconds of gradient sums after the backward pass
  double update = 0;      // seconds
  double step = 0;        // seconds
  double bytes_between_hosts = 0;
  // The layers after which the measured times would cut the network, if the slowest stage were
  // faster.
  std::vector<std::string> better_cuts;

  // Returns the part of the time of all passes in which the stages are idle, on average.
  double bubble() const;
  double seconds_of_passes() const;
  size_t largest_stage() const;      // bytes
  bool fits_by_recomputing = false;  // whether recomputation fits it into the limit
};

class LayoutPredictor {
 public:
  // Measures layers if that takes at most `max_measured` bytes. `limit` is the memory of a rank, 0
  // if unknown. All references must outlive the predictor.
  LayoutPredictor(const Config& config, const model::Graph& graph, ops::Backend& backend,
                  Hosts hosts, size_t limit, size_t max_measured);

  // Throws ConfigError if the network cannot be trained with so many stages.
  LayoutPrediction predict(int stages);
  // Returns the predictions for all possible numbers of stages, ascending.
  std::vector<LayoutPrediction> all();

 private:
  // Measures the program on this rank alone, without communication, or estimates it.
  LayerCosts costs_of(const model::Program& program, const model::Parameters& parameters,
                      LayoutPrediction& prediction);
  // Chooses the neighbors unless they are configured.
  void place(LayoutPrediction& prediction) const;
  void suggest_cuts(const NetworkToCut& network, const LayerCosts& costs,
                    LayoutPrediction& prediction) const;
  double bytes_between_hosts(const LayoutPrediction& prediction, const Grid& grid) const;
  void predict_times(LayoutPrediction& prediction, double update_accesses) const;

  const Config& config_;
  const model::Graph& graph_;
  ops::Backend& backend_;
  const Hosts hosts_;
  const size_t limit_;
  const size_t max_measured_;
  double measured_ratio_ = 1;  // of measured to estimated times
};

// Returns the fastest whose stages fit into the limit; if there is none, the fastest that fits by
// recomputing; if there is none, the one with the smallest stages.
const LayoutPrediction& fastest(const std::vector<LayoutPrediction>& layouts, size_t limit);
// Sets parallel.stages and parallel.neighbors to those of the layout.
void adopt(const LayoutPrediction& layout, Config& config);

// Sets parallel.stages and parallel.neighbors in the configuration if they are to be chosen.
// Measures the network between hosts if that matters. Collective.
void choose_parallel(Config& config, const model::Graph& graph, ops::Backend& backend,
                     comm::Communicator& world);

}  // namespace trireme::train
