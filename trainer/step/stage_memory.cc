#include "trainer/step/stage_memory.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include "core/alignment.h"
#include "core/error.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/shard.h"
#include "trainer/step/pipeline_schedule.h"
#include "trainer/step/stage_links.h"
#include "trainer/step/stage_plan.h"

namespace trireme::train {

StageMemory::StageMemory(const NetworkToCut& network, const std::vector<model::Cut>& cuts)
    : network_(network), cuts_(cuts) {
  const int nodes = static_cast<int>(network.graph.nodes.size());
  for (int n = 0; n < nodes; ++n) parameters_.push_back(network.whole.parameters_of(n, n + 1));
  whole_ = fixed_bytes(0, 1, 0, cuts.size() + 1);
  per_flight_ = device_aligned(network.whole.activation_bytes());
  size_t crossing = 0;
  for (const model::Cut& cut : cuts) {
    crossing = std::max(crossing, cut.forward_bytes + cut.backward_bytes);
  }
  per_flight_ += 2 * crossing;
}

const model::Cut* StageMemory::cut(size_t place) const {
  return place == 0 || place > cuts_.size() ? nullptr : &cuts_[place - 1];
}

int StageMemory::node(size_t place) const {
  if (place == 0) return 0;
  return cut(place) ? cut(place)->node : static_cast<int>(parameters_.size());
}

size_t StageMemory::state_bytes(size_t from, size_t end) const {
  const RunConfig& run = network_.config.run;
  const model::Parameters& parameters = network_.parameters;
  std::set<int> own;
  for (int n = node(from); n < node(end); ++n) {
    own.insert(parameters_[static_cast<size_t>(n)].begin(),
               parameters_[static_cast<size_t>(n)].end());
  }
  int64_t all = 0, trained = 0;
  for (const int index : own) {
    const model::Parameter& parameter = parameters.all[static_cast<size_t>(index)];
    all += parameter.end - parameter.begin;
    if (!parameter.frozen) trained += parameter.end - parameter.begin;
  }
  const size_t low = parameters.low_precision() ? size_of(parameters.dtype) : 0;
  const size_t copies = uses_ema(run.optimizer()) ? 2 : 1;
  const auto shards = static_cast<size_t>(shard_of(run, 0, network_.ranks).count);
  const size_t arrays = optimizer_state_names(run.optimizer()).size();
  return static_cast<size_t>(all) * copies * (sizeof(float) + low) +
         static_cast<size_t>(trained) * sizeof(float) * (shards + arrays) / shards;
}

size_t StageMemory::fixed_bytes(int index, int stages, size_t from, size_t end) const {
  const int64_t in_flight = micro_batches_in_flight(index, stages, network_.batch.passes);
  const auto exchanged = [&](size_t place, bool begins) {
    const model::Cut* const at = cut(place);
    return at ? StageExchange::bytes_at(*at, begins, in_flight) : 0;
  };
  size_t bytes = state_bytes(from, end) + exchanged(from, true) + exchanged(end, false);
  if (!cut(from) || !cut(end)) {
    const model::ModelInput& sample = network_.graph.input;
    bytes += static_cast<size_t>(network_.batch.capacity) *
             (sample.input.bytes() + sample.target.bytes());
  }
  return bytes;
}

size_t StageMemory::planned_activations(size_t from, size_t end) {
  const auto [found, is_new] = activations_.try_emplace({from, end}, 0);
  if (!is_new) return found->second;
  try {
    found->second = network_.whole.activation_bytes_of(node(from), node(end), network_.backend);
  } catch (const Error&) {
    found->second = network_.whole.activation_bytes();  // an upper bound
  }
  return found->second;
}

size_t StageMemory::bytes(int index, int stages, size_t from, size_t end) {
  const auto in_flight =
      static_cast<size_t>(micro_batches_in_flight(index, stages, network_.batch.passes));
  return fixed_bytes(index, stages, from, end) +
         in_flight * device_aligned(planned_activations(from, end));
}

size_t StageMemory::excess(int index, int stages, size_t from, size_t end) {
  const size_t limit = network_.limit;
  if (limit == 0 || whole_ + static_cast<size_t>(stages + 1) * per_flight_ <= limit) return 0;
  const auto in_flight =
      static_cast<size_t>(micro_batches_in_flight(index, stages, network_.batch.passes));
  const size_t most = fixed_bytes(index, stages, from, end) +
                      in_flight * device_aligned(network_.whole.activation_bytes());
  if (most <= limit) return 0;
  const size_t needed = bytes(index, stages, from, end);
  return needed > limit ? needed - limit : 0;
}

}  // namespace trireme::train
