#include "trainer/step/parallel_choice.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "comm/control.h"
#include "core/error.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/shard.h"
#include "trainer/step/carried_states.h"
#include "trainer/step/pipeline.h"
#include "trainer/step/pipeline_schedule.h"
#include "trainer/step/planned_collective.h"
#include "trainer/step/rank_memory.h"
#include "trainer/step/stage_memory.h"
#include "trainer/step/stage_plan.h"
#include "trainer/step/training_program.h"

namespace trireme::train {
namespace {

// The time of copying a byte to another rank of the host, relative to that of reading or writing
// one.
constexpr double kCopyCost = 4;
// The part of a pass that is its backward pass, with which gradient sums overlap.
constexpr double kBackwardPart = 2.0 / 3;
constexpr size_t kMaxMeasuredBytes = size_t{2} << 30;

// Returns the hosts of the replicas of a stage.
std::set<int> hosts_of_stage(const Hosts& hosts, const Grid& grid, int stage) {
  std::set<int> found;
  for (int replica = 0; replica < grid.replicas; ++replica) {
    found.insert(hosts.of_rank[static_cast<size_t>(grid.rank_of(stage, replica))]);
  }
  return found;
}

bool crosses_hosts(const Hosts& hosts, const Grid& grid, int stage, int replica) {
  return hosts.of_rank[static_cast<size_t>(grid.rank_of(stage, replica))] !=
         hosts.of_rank[static_cast<size_t>(grid.rank_of(stage + 1, replica))];
}

// Returns how many process groups of replicas send over the network of the busiest host at a time.
int sharing_sums(const Hosts& hosts, const Grid& grid) {
  std::map<int, int> groups;
  int most = 1;
  for (int stage = 0; stage < grid.stages; ++stage) {
    const std::set<int> all = hosts_of_stage(hosts, grid, stage);
    for (const int host : all) {
      if (all.size() > 1) most = std::max(most, ++groups[host]);
    }
  }
  return most;
}

// Returns how many stages send to the next one over the network of the busiest host.
int sharing_transfers(const Hosts& hosts, const Grid& grid) {
  std::map<int, int> edges;
  int most = 1;
  for (int stage = 0; stage + 1 < grid.stages; ++stage) {
    for (int replica = 0; replica < grid.replicas; ++replica) {
      if (!crosses_hosts(hosts, grid, stage, replica)) continue;
      const int from = hosts.of_rank[static_cast<size_t>(grid.rank_of(stage, replica))];
      most = std::max(most, ++edges[from]);
    }
  }
  return most;
}

// Returns the speed of the network, measured by a sum over all ranks. Collective.
double measure_network(comm::Communicator& world) {
  const int hosts = world.placement().hosts;
  if (hosts == 1) return 0;
  double seconds = 0;
  std::vector<double> values(1 << 17);
  const auto bytes = static_cast<double>(values.size() * sizeof(double));
  for (int i = 0; i < 2; ++i) {  // the first one opens connections
    const auto begin = std::chrono::steady_clock::now();
    comm::sum(world, values);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  return 2 * bytes * (hosts - 1) / hosts / seconds;
}

std::vector<int> gather_hosts(comm::Communicator& world) {
  std::vector<int> hosts;
  for (const std::string& host : all_gather(world, std::to_string(world.placement().host))) {
    hosts.push_back(std::stoi(host));
  }
  return hosts;
}

Config with_stages(const Config& config, int stages) {
  Config changed = config;
  ParallelConfig& parallel = *changed.run.mutable_parallel();
  if (parallel.stages() != stages) parallel.clear_cut_after();
  parallel.set_stages(stages);
  return changed;
}

size_t trained_bytes(const model::Program& whole, const model::Parameters& parameters, int begin,
                     int end) {
  size_t bytes = 0;
  for (const int index : whole.parameters_of(begin, end)) {
    const model::Parameter& parameter = parameters.all[static_cast<size_t>(index)];
    if (!parameter.frozen)
      bytes += sizeof(float) * static_cast<size_t>(parameter.end - parameter.begin);
  }
  return bytes;
}

// Returns the place of the cut before the node, as in StageMemory.
size_t place_of(const std::vector<model::Cut>& cuts, int node) {
  const auto found = std::ranges::find(cuts, node, &model::Cut::node);
  return static_cast<size_t>(found - cuts.begin()) + 1;
}

std::vector<StagePrediction> predict_stages(const NetworkToCut& network,
                                            const std::vector<int>& begins,
                                            const LayerCosts& costs) {
  const std::vector<model::Cut> cuts = network.whole.cuts();
  StageMemory memory(network, cuts);
  const int count = static_cast<int>(begins.size()) + 1;
  std::vector<StagePrediction> stages;
  for (int i = 0; i < count; ++i) {
    StagePrediction& stage = stages.emplace_back();
    const auto next = static_cast<size_t>(i);
    stage.begin = i == 0 ? 0 : begins[next - 1];
    stage.end = i + 1 < count ? begins[next] : static_cast<int>(network.graph.nodes.size());
    stage.seconds = std::accumulate(costs.begin() + stage.begin, costs.begin() + stage.end, 0.0);
    const size_t from = i == 0 ? 0 : place_of(cuts, stage.begin);
    const size_t end = place_of(cuts, stage.end);  // beyond the last cut for the end of the network
    stage.bytes = memory.bytes(i, count, from, end);
    stage.trained_bytes = trained_bytes(network.whole, network.parameters, stage.begin, stage.end);
    if (end > cuts.size()) continue;
    stage.forward_bytes = cuts[end - 1].forward_bytes;
    stage.backward_bytes = cuts[end - 1].backward_bytes;
  }
  return stages;
}

}  // namespace

Hosts even_hosts(int ranks, int hosts, double bytes_per_second) {
  Hosts all{.of_rank = {}, .bytes_per_second = bytes_per_second};
  for (int rank = 0; rank < ranks; ++rank) all.of_rank.push_back(rank * hosts / ranks);
  return all;
}

double LayoutPrediction::seconds_of_passes() const { return step - sums - update; }

double LayoutPrediction::bubble() const {
  double busy = 0;
  for (const StagePrediction& stage : stages) {
    busy += stage.seconds * static_cast<double>(batch.passes);
  }
  return 1 - busy / (static_cast<double>(stages.size()) * seconds_of_passes());
}

size_t LayoutPrediction::largest_stage() const {
  return std::ranges::max(stages, {}, &StagePrediction::bytes).bytes;
}

LayoutPredictor::LayoutPredictor(const Config& config, const model::Graph& graph,
                                 ops::Backend& backend, Hosts hosts, size_t limit,
                                 size_t max_measured)
    : config_(config),
      graph_(graph),
      backend_(backend),
      hosts_(std::move(hosts)),
      limit_(limit),
      max_measured_(max_measured) {}

LayerCosts LayoutPredictor::costs_of(const model::Program& program,
                                     const model::Parameters& parameters,
                                     LayoutPrediction& prediction) {
  LayerCosts estimated = estimate_layers(graph_, program, backend_.device().kind());
  const auto sum = [](const LayerCosts& costs) {
    return std::accumulate(costs.begin(), costs.end(), 0.0);
  };
  if (measured_bytes(program, parameters) <= max_measured_) {
    LayerCosts measured =
        measure_layers(graph_, program, parameters, backend_, prediction.batch.micro);
    prediction.measured = true;
    if (sum(estimated) > 0) measured_ratio_ = sum(measured) / sum(estimated);
    return measured;
  }
  for (double& cost : estimated) cost *= measured_ratio_;
  return estimated;
}

LayoutPrediction LayoutPredictor::predict(int stages) {
  const Config config = with_stages(config_, stages);
  const int ranks = static_cast<int>(hosts_.of_rank.size());
  if (stages > 1 && config.run.parallel().shard() == ParallelConfig::GRADIENTS) {
    throw ConfigError(config.where("parallel.shard"), "GRADIENTS cannot be combined with stages");
  }
  if (stages > 1 && config.run.data().has_length_buckets()) {
    throw ConfigError(config.where("parallel.stages"),
                      "cannot be combined with data.length_buckets");
  }
  LayoutPrediction prediction;
  prediction.batch = plan_batch(config, ranks);
  prediction.grid = grid_of(config.run, 0, ranks);
  PlannedCollective collective(ranks);
  const TrainingTarget target{.config = config,
                              .graph = graph_,
                              .backend = backend_,
                              .ranks = ranks,
                              .limit = limit_,
                              .batches = 1,
                              .collective = ranks > 1 ? &collective : nullptr,
                              .cut_limit = limit_};
  model::Parameters parameters;
  const auto whole = compile_whole(target, prediction.batch, parameters);
  if (stages > 1 && CarriedStates::bytes_of(*whole, 1) > 0) {
    throw ConfigError(config.where("parallel.stages"),
                      "stateful layers cannot be trained in pipeline stages");
  }
  const NetworkToCut network{config,     graph_,           backend_, *whole,
                             parameters, prediction.batch, ranks,    limit_};
  std::vector<int> begins;
  if (stages > 1) {
    begins = plan_stages(network, estimate_layers(graph_, *whole, backend_.device().kind()));
  }
  const LayerCosts costs = costs_of(*whole, parameters, prediction);
  prediction.stages = predict_stages(network, begins, costs);
  if (limit_ > 0 && prediction.largest_stage() > limit_) {
    model::Parameters largest;
    prediction.fits_by_recomputing =
        compile_largest_stage(target, prediction.batch.passes, largest).memory.total() <= limit_;
  }
  if (stages > 1 && config.run.parallel().cut_after().empty() && prediction.measured) {
    suggest_cuts(network, costs, prediction);
  }
  place(prediction);
  const size_t arrays = optimizer_state_names(config.run.optimizer()).size();
  const int shards = shard_of(config.run, 0, ranks).count;
  // Reads the gradient, reads and writes the parameter and the state.
  predict_times(prediction, (3 + 2 * static_cast<double>(arrays)) / shards);
  return prediction;
}

void LayoutPredictor::suggest_cuts(const NetworkToCut& network, const LayerCosts& costs,
                                   LayoutPrediction& prediction) const {
  constexpr double kWorthwhile = 0.95;  // of the time of the slowest stage
  const auto slowest = [](const std::vector<StagePrediction>& stages) {
    return std::ranges::max(stages, {}, &StagePrediction::seconds).seconds;
  };
  const std::vector<int> begins = plan_stages(network, costs);
  if (slowest(predict_stages(network, begins, costs)) > kWorthwhile * slowest(prediction.stages)) {
    return;
  }
  for (const int begin : begins) {
    prediction.better_cuts.push_back(graph_.nodes[static_cast<size_t>(begin) - 1].name);
  }
}

void LayoutPredictor::place(LayoutPrediction& prediction) const {
  Grid& grid = prediction.grid;
  if (config_.run.parallel().neighbors() == ParallelConfig::AUTO) {
    Grid other = grid;
    other.stages_are_neighbors = true;
    grid.stages_are_neighbors =
        bytes_between_hosts(prediction, other) < bytes_between_hosts(prediction, grid);
  }
  prediction.bytes_between_hosts = bytes_between_hosts(prediction, grid);
}

double LayoutPredictor::bytes_between_hosts(const LayoutPrediction& prediction,
                                            const Grid& grid) const {
  double bytes = 0;
  for (int s = 0; s < grid.stages; ++s) {
    const StagePrediction& stage = prediction.stages[static_cast<size_t>(s)];
    const auto hosts = static_cast<double>(hosts_of_stage(hosts_, grid, s).size());
    bytes += 2 * (hosts - 1) * static_cast<double>(stage.trained_bytes);
    if (s + 1 == grid.stages) continue;
    const double crossing = static_cast<double>(stage.forward_bytes + stage.backward_bytes) *
                            static_cast<double>(prediction.batch.passes);
    for (int replica = 0; replica < grid.replicas; ++replica) {
      if (crosses_hosts(hosts_, grid, s, replica)) bytes += crossing;
    }
  }
  return bytes;
}

void LayoutPredictor::predict_times(LayoutPrediction& prediction, double update_accesses) const {
  const Grid& grid = prediction.grid;
  const double memory = typical_memory_speed(backend_.device().kind());
  const double sum_speed = hosts_.bytes_per_second / sharing_sums(hosts_, grid);
  const double transfer_speed = hosts_.bytes_per_second / sharing_transfers(hosts_, grid);
  double slowest = 0, fill = 0;
  for (int s = 0; s < grid.stages; ++s) {
    const StagePrediction& stage = prediction.stages[static_cast<size_t>(s)];
    const auto trained = static_cast<double>(stage.trained_bytes);
    const auto hosts = static_cast<double>(hosts_of_stage(hosts_, grid, s).size());
    double sums = grid.replicas > 1 ? trained * grid.replicas / (2 * memory) : 0;
    if (hosts > 1) sums += 2 * (hosts - 1) / hosts * trained / sum_speed;
    prediction.sums =
        std::max(prediction.sums, std::max(0.0, sums - kBackwardPart * stage.seconds));
    prediction.update = std::max(prediction.update, update_accesses * trained / memory);
    bool remote = false;
    for (int replica = 0; replica < grid.replicas && s + 1 < grid.stages; ++replica) {
      remote |= crosses_hosts(hosts_, grid, s, replica);
    }
    const double speed = remote ? transfer_speed : memory / kCopyCost;
    const double forward = static_cast<double>(stage.forward_bytes) / speed;
    const double backward = static_cast<double>(stage.backward_bytes) / speed;
    prediction.transfers = std::max({prediction.transfers, forward, backward});
    fill += forward + backward;
    slowest = std::max({slowest, stage.seconds, forward, backward});
  }
  const auto slots = static_cast<double>(prediction.batch.passes + grid.stages - 1);
  prediction.step = slots * slowest + fill + prediction.sums + prediction.update;
}

std::vector<LayoutPrediction> LayoutPredictor::all() {
  std::vector<LayoutPrediction> possible;
  std::exception_ptr problem;
  const int ranks = static_cast<int>(hosts_.of_rank.size());
  for (int stages = 1; stages <= ranks; ++stages) {
    if (ranks % stages != 0) continue;
    try {
      possible.push_back(predict(stages));
    } catch (const ConfigError&) {
      // The network, the batch or another setting does not allow it.
      if (!problem) problem = std::current_exception();
    }
  }
  if (possible.empty()) std::rethrow_exception(problem);
  return possible;
}

const LayoutPrediction& fastest(const std::vector<LayoutPrediction>& layouts, size_t limit) {
  return *std::ranges::min_element(layouts, {}, [&](const LayoutPrediction& each) {
    const size_t bytes = each.largest_stage();
    const bool fits = limit == 0 || bytes <= limit;
    const size_t excess = fits || each.fits_by_recomputing ? 0 : bytes - limit;
    return std::tuple(excess, !fits, each.step);
  });
}

void adopt(const LayoutPrediction& layout, Config& config) {
  ParallelConfig& parallel = *config.run.mutable_parallel();
  parallel.set_stages(layout.grid.stages);
  if (parallel.neighbors() != ParallelConfig::AUTO) return;
  parallel.set_neighbors(layout.grid.stages_are_neighbors ? ParallelConfig::STAGES
                                                          : ParallelConfig::REPLICAS);
}

void choose_parallel(Config& config, const model::Graph& graph, ops::Backend& backend,
                     comm::Communicator& world) {
  ParallelConfig& parallel = *config.run.mutable_parallel();
  const bool chooses_stages = parallel.stages() == 0;
  const bool has_grid = parallel.stages() > 1 && world.size() > parallel.stages();
  const bool chooses_neighbors =
      parallel.neighbors() == ParallelConfig::AUTO && has_grid && world.placement().hosts > 1;
  if (!chooses_stages && !chooses_neighbors) return;
  Device& device = backend.device();
  if (chooses_stages && !why_no_stages(config, world, device).empty()) {
    return parallel.set_stages(1);
  }
  size_t limit = 0;
  comm::together(world, [&] {
    limit = memory_limit(config,
                         memory_budget_of(device, world.placement().local_ranks, config, graph));
  });
  limit = smallest_limit(world, limit);
  Hosts hosts{gather_hosts(world), chooses_stages ? measure_network(world) : 1};
  std::string chosen;
  comm::together(world, [&] {
    if (world.rank() != 0) return;
    LayoutPredictor predictor(
        config, graph, backend, std::move(hosts), limit,
        chooses_stages ? (limit > 0 ? std::min(kMaxMeasuredBytes, limit) : kMaxMeasuredBytes) : 0);
    adopt(chooses_stages ? fastest(predictor.all(), limit) : predictor.predict(parallel.stages()),
          config);
    chosen = parallel.SerializeAsString();
  });
  parallel.ParseFromString(broadcast(world, chosen, 0));
}

}  // namespace trireme::train
