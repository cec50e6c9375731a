// The memory of possible pipeline stages, before they are compiled.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "model/program.h"

namespace trireme::train {

struct NetworkToCut;

// A stage begins and ends at places: 0 is the beginning of the network, n is cut n - 1, and the one
// after the last cut is the end.
class StageMemory {
 public:
  // The arguments must outlive this object.
  StageMemory(const NetworkToCut& network, const std::vector<model::Cut>& cuts);

  // Returns how many bytes more than the limit stage `index` of `stages` needs, without
  // recomputation; 0 if it fits or there is no limit. Plans the activations only where that
  // decides.
  size_t excess(int index, int stages, size_t from, size_t end);
  // Returns the bytes that it needs.
  size_t bytes(int index, int stages, size_t from, size_t end);

 private:
  int node(size_t place) const;
  const model::Cut* cut(size_t place) const;
  // Returns the bytes of parameters, gradients and optimizer state.
  size_t state_bytes(size_t from, size_t end) const;
  // Returns the bytes that do not depend on the plan of the activations.
  size_t fixed_bytes(int index, int stages, size_t from, size_t end) const;
  size_t planned_activations(size_t from, size_t end);

  const NetworkToCut& network_;
  const std::vector<model::Cut>& cuts_;
  std::vector<std::vector<int>> parameters_;  // by node
  std::map<std::pair<size_t, size_t>, size_t> activations_;
  size_t whole_ = 0;       // bytes of the network that do not depend on micro-batches
  size_t per_flight_ = 0;  // upper bound of a stage's bytes for each micro-batch in flight
};

}  // namespace trireme::train
