#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "comm/control.h"
#include "core/text.h"
#include "launch/cli.h"
#include "launch/commands.h"
#include "launch/measure_operations.h"
#include "launch/message.h"
#include "launch/plan.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/device.h"
#include "trainer/config/grid.h"
#include "trainer/config/inputs.h"
#include "trainer/step/batch_statistics.h"
#include "trainer/step/pipeline_schedule.h"

namespace trireme::cli {
namespace {

// Choosing what to compute again takes seconds for more.
constexpr size_t kMaxRecomputedLayers = 2000;

struct InspectOptions : TargetOptions {
  int ranks = 0;
  PlannedHosts hosts;
  bool listing = false;
};

std::string flops_text(double flops) { return flops > 0 ? format_count(flops) : "-"; }

void print_layers(const model::Program& program) {
  const std::vector<model::LayerReport> layers = program.layers();
  size_t name_width = 5;
  size_t kind_width = 4;
  size_t shape_width = 6;
  for (const model::LayerReport& layer : layers) {
    name_width = std::max(name_width, layer.name.size());
    kind_width = std::max(kind_width, layer.kind.size());
    shape_width = std::max(shape_width, layer.output.to_string().size());
  }
  const auto row = [&](const std::string& name, const std::string& kind, const std::string& shape,
                       const std::string& parameters, const std::string& forward,
                       const std::string& backward) {
    fmt::print("  {:<{}}  {:<{}}  {:<{}}  {:>12}  {:>12}  {:>12}\n", name, name_width, kind,
               kind_width, shape, shape_width, parameters, forward, backward);
  };
  row("layer", "kind", "output", "parameters", "forward FLOP", "backward");
  int64_t parameters = 0;
  int64_t frozen = 0;
  for (const model::LayerReport& layer : layers) {
    parameters += layer.parameters;
    frozen += layer.frozen;
    const std::string count = fmt::format("{}{}", layer.frozen > 0 ? "*" : "", layer.parameters);
    row(layer.name, layer.kind, layer.output.to_string(), layer.parameters > 0 ? count : "-",
        flops_text(layer.forward_flops), flops_text(layer.backward_flops));
  }
  row("total", "", "", fmt::format("{}", parameters), flops_text(program.forward_flops()),
      flops_text(program.backward_flops()));
  if (frozen > 0) fmt::print("* frozen; {} parameters are trainable\n", parameters - frozen);
}

bool has_stages(const Target& target) { return target.config.run.parallel().stages() > 1; }

// Returns which ranks the plan is for: "each of 4 ranks".
std::string ranks_text(const Target& target, const RankPlan& plan) {
  if (has_stages(target)) {
    return fmt::format("each rank of stage {}, which needs most", plan.stage);
  }
  return fmt::format("each of {} rank{}", plan.ranks, plan.ranks == 1 ? "" : "s");
}

void print_memory(const Target& target, const RankPlan& plan) {
  fmt::print("\nPlanned memory of {}, in bytes\n", ranks_text(target, plan));
  const auto row = [](const std::string& name, size_t bytes) {
    fmt::print("  {:<34} {:>16}  {:>10}\n", name, bytes, bytes_text(bytes));
  };
  for (const train::RankMemory::Part& part : plan.memory.parts) row(part.name, part.bytes);
  row("total", plan.memory.total());
  if (plan.limit > 0) row("limit", plan.limit);
}

// The times of the plan's operations, or why there are none.
struct Measured {
  std::vector<double> seconds;  // see measure_operations
  std::string problem;
};

Measured measure(const model::Graph& graph, const RankPlan& plan) {
  // At most a quarter of the memory that a rank may use, if that is more.
  const size_t max_bytes =
      std::max(kMaxMeasuredBytes, plan.budget.bytes / static_cast<size_t>(plan.budget.ranks) / 4);
  if (const size_t bytes = plan.memory.total(); bytes > max_bytes) {
    return {{}, fmt::format("would take {} of memory", bytes_text(bytes))};
  }
  std::fflush(stdout);  // measuring takes a while
  try {
    return {measure_operations(plan, graph), ""};
  } catch (const DeviceError& error) {
    return {{}, error.what()};
  }
}

// Returns "+3.1 ms", the time per step that a program takes for operations that run again.
std::string added_text(const model::Program& program, const RankPlan& plan,
                       const Measured& measured) {
  if (train::repeated_operations(program) == 0) return "-";
  if (measured.seconds.empty()) return "?";
  const double seconds = recomputation_seconds(program, plan, measured.seconds);
  return fmt::format("+{:.1f} ms", 1e3 * static_cast<double>(plan.batch.passes) * seconds);
}

// Prints the memory of a rank by use with each way to reduce it, and the way that training takes.
void print_choices(const Target& target, const model::Graph& graph, const RankPlan& plan,
                   const Measured& measured) {
  const bool recomputes = graph.nodes.size() <= kMaxRecomputedLayers;
  fmt::print(
      "\nMemory of each rank{} by choice: shards, and {}.\n\"again\" counts the operations of the "
      "forward pass that run again in the backward pass{}\n",
      has_stages(target) ? " of the stage that needs most" : "",
      recomputes ? std::string("no or as much recomputation as saves memory")
                 : fmt::format("no recomputation, which is tried for up to {} layers",
                               kMaxRecomputedLayers),
      measured.problem.empty()
          ? fmt::format(", and their time per step of {} pass{}, measured on this machine",
                        plan.batch.passes, plan.batch.passes == 1 ? "" : "es")
          : fmt::format("; their time was not measured: {}", measured.problem));
  const auto row = [](const auto&... cells) {
    fmt::print("  {:<14}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}  {:>5}  {:>10}  {}\n",
               cells...);
  };
  const auto row_of = [&](const RunConfig& run, const train::RankMemory& memory,
                          const model::Program& program, const char* note) {
    using Use = train::RankMemory::Use;
    const auto bytes = [&](Use use) { return bytes_text(memory.of(use)); };
    row(ParallelConfig::Shard_Name(run.parallel().shard()), bytes(Use::kParameters),
        bytes(Use::kGradients), bytes(Use::kOptimizer), bytes(Use::kSaved), bytes(Use::kWork),
        bytes_text(memory.total()), train::repeated_operations(program),
        added_text(program, plan, measured), note);
  };
  row("parallel.shard", "parameters", "gradients", "optimizer", "saved", "work", "total", "again",
      "added", "");
  const train::Grid grid = train::grid_of(target.config.run, 0, plan.ranks);
  for (const ParallelConfig::Shard shard :
       {ParallelConfig::NONE, ParallelConfig::OPTIMIZER, ParallelConfig::GRADIENTS}) {
    if (shard != ParallelConfig::NONE && grid.replicas == 1) continue;
    const bool possible =
        shard != ParallelConfig::GRADIENTS || train::can_shard_gradients(target.config.run);
    if (!possible) continue;
    Target choice = target;
    choice.config.run.mutable_parallel()->set_shard(shard);
    for (const size_t limit : {0, 1}) {
      if (limit > 0 && !recomputes) continue;
      const train::TrainingProgram compiled = plan_choice(choice, graph, plan, limit);
      row_of(choice.config.run, compiled.memory, *compiled.program, "");
    }
  }
  row_of(target.config.run, plan.memory, *plan.program, "<- as configured");
}

std::string milliseconds(double seconds) { return fmt::format("{:.3g}", 1e3 * seconds); }

// Prints the predicted times of a step with different numbers of stages.
void print_layouts(const std::vector<train::LayoutPrediction>& layouts,
                   const InspectOptions& options, int ranks) {
  if (layouts.empty()) return;
  const auto [hosts, gigabits] = options.hosts;
  const bool measured = std::ranges::all_of(layouts, &train::LayoutPrediction::measured);
  fmt::print("\nPredicted step of {} ranks on {}, in milliseconds, from {} times of layers\n",
             ranks,
             hosts == 1 ? "one host"
                        : fmt::format("{} hosts with {:.3g} Gbit/s between them", hosts, gigabits),
             measured ? "measured" : "estimated");
  const auto row = [](const auto&... cells) {
    fmt::print("  {:<6}  {:>8}  {:>13}  {:>8}  {:>9}  {:>6}  {:>6}  {:>6}  {:>13}  {:>8}\n",
               cells...);
  };
  row("stages", "replicas", "micro-batches", "slowest", "transfers", "sums", "update", "idle",
      "between hosts", "step");
  for (const train::LayoutPrediction& layout : layouts) {
    const double slowest =
        std::ranges::max(layout.stages, {}, &train::StagePrediction::seconds).seconds;
    row(layout.grid.stages, layout.grid.replicas, layout.batch.passes, milliseconds(slowest),
        milliseconds(layout.transfers), milliseconds(layout.sums), milliseconds(layout.update),
        fmt::format("{:.0f}%", std::max(0.0, 100 * layout.bubble())),
        bytes_text(static_cast<size_t>(layout.bytes_between_hosts)), milliseconds(layout.step));
  }
  for (const train::LayoutPrediction& layout : layouts) {
    if (layout.better_cuts.empty()) continue;
    fmt::print("  {} stages would be faster with --set parallel.cut_after={}\n", layout.grid.stages,
               fmt::join(layout.better_cuts, ","));
  }
}

// Prints what each pipeline stage has and sends for a micro-batch.
void print_stages(const Target& target, const model::Graph& graph, const RankPlan& plan,
                  const std::vector<train::LayoutPrediction>& layouts) {
  const train::Grid grid = train::grid_of(target.config.run, 0, plan.ranks);
  if (!grid.has_pipeline()) return;
  fmt::print(
      "\n{} pipeline stages of {} replica{} each; with {} micro-batches, stages are idle for "
      "{:.1f}% of the time if they take equally long, otherwise longer\n",
      grid.stages, grid.replicas, grid.replicas == 1 ? "" : "s", plan.batch.passes,
      100 * train::pipeline_bubble(grid.stages, plan.batch.passes));
  const auto row = [](const auto&... cells) {
    fmt::print("  {:<5}  {:<24}  {:>10}  {:>12}  {:>8}  {:>10}  {:>10}  {:>10}\n", cells...);
  };
  const auto layout =
      std::ranges::find(layouts, grid.stages, [](const auto& each) { return each.grid.stages; });
  row("stage", "last layer", "parameters", "FLOP", "ms", "memory", "sends on", "sends back");
  for (int stage = 0; stage < grid.stages; ++stage) {
    const train::TrainingProgram compiled =
        plan_choice(target, graph, plan, plan.limit, grid.rank_of(stage, 0));
    const std::vector<int>& begins = compiled.stage.begins;
    const auto index = static_cast<size_t>(stage);
    const size_t end =
        index < begins.size() ? static_cast<size_t>(begins[index]) : graph.nodes.size();
    const model::Program& program = *compiled.program;
    using model::Port;
    row(stage, graph.nodes[end - 1].name,
        bytes_text(compiled.memory.of(train::RankMemory::Use::kParameters)),
        flops_text(program.forward_flops() + program.backward_flops()),
        layout == layouts.end() ? "-" : milliseconds(layout->stages[index].seconds),
        bytes_text(compiled.memory.total()), bytes_text(program.port_bytes(Port::kStageOutput)),
        bytes_text(program.port_bytes(Port::kStageInputGradient)));
  }
}

// Called by rank 0 only, since the plan is the same on every rank.
void print_plan(const InspectOptions& options, Target target, const model::Graph& graph,
                int ranks) {
  std::vector<train::LayoutPrediction> layouts;
  if (target.config.run.parallel().stages() != 1) {
    layouts = predict_layouts(target, graph, ranks, options.hosts);
  }
  const auto plan =
      plan_rank(target, graph, ranks, (ranks + options.hosts.hosts - 1) / options.hosts.hosts);
  const data::SampleSpec& samples = target.samples;
  const train::BatchPlan& batch = plan->batch;
  const int64_t replicas = train::grid_of(target.config.run, 0, ranks).replicas;
  print_message("{}: input {}, {}, {} samples per {} in {} pass{} of {}\n\n",
                train::model_name(target.config.run), samples.input.to_string(),
                target_text(samples), (batch.global + replicas - 1) / replicas,
                has_stages(target) ? "replica" : "rank", batch.passes,
                batch.passes == 1 ? "" : "es", batch.micro);
  model::Parameters all;
  const auto whole =
      has_stages(target)
          ? model::Program::compile(
                graph, *plan->backend,
                {.batch = batch.micro, .dtype = train::compute_dtype(target.config)}, all)
          : nullptr;
  print_layers(whole ? *whole : *plan->program);
  print_memory(target, *plan);
  // Only a warning, because the network may be meant for another machine.
  const std::string problem = memory_problem(target, graph, *plan);
  const Measured measured = whole              ? Measured{{}, "a stage does not run alone"}
                            : !problem.empty() ? Measured{{}, "there is too little memory"}
                                               : measure(graph, *plan);
  print_choices(target, graph, *plan, measured);
  print_stages(target, graph, *plan, layouts);
  print_layouts(layouts, options, ranks);
  const train::Grid grid = train::grid_of(target.config.run, 0, ranks);
  for (const std::string& warning : {train::pipeline_warning(target.config, batch, ranks),
                                     train::statistics_warning(graph, batch, grid), problem}) {
    if (!warning.empty()) train::warn_on_stderr(warning);
  }
  if (options.listing) fmt::print("\n{}", plan->program->listing());
}

int inspect(const InspectOptions& options, comm::Communicator& communicator) {
  const int ranks = options.ranks > 0 ? options.ranks : communicator.size();
  Target target;
  model::Graph graph;
  comm::together(communicator, [&] {
    target = load_target(options, ranks);
    train::plan_batch(target.config, ranks);
    graph = train::build_network(target.config, target.samples);
  });
  if (communicator.rank() == 0) print_plan(options, target, graph, ranks);
  return 0;
}

}  // namespace

void add_inspect(ArgumentParser app, Command& chosen) {
  auto options = std::make_shared<InspectOptions>();
  ArgumentParser command =
      app.add_command("inspect", "Print a network's layers, shapes and memory");
  options->add_to(command);
  command
      .add_option("--ranks", options->ranks,
                  "Number of ranks to plan for (default: the ranks of this command)")
      .positive();
  command
      .add_option(
          "--hosts", options->hosts.hosts,
          "Number of hosts that these ranks are on, for predictions of pipelines (default: 1)")
      .positive();
  command
      .add_option("--network", options->hosts.gigabits,
                  "Gbit/s between two hosts, for predictions of pipelines (default: 10)")
      .positive();
  command.add_flag("--listing", options->listing,
                   "Also print the compiled program, one operation per line");
  command.epilog(R"(Examples:
  trireme inspect resnet50 --ranks 8 --batch 32
  trireme inspect digits.txtpb --set batch.global=256
)");
  command.on_chosen([options, &chosen] {
    chosen.run = [options](comm::Communicator& communicator) {
      return inspect(*options, communicator);
    };
  });
}

}  // namespace trireme::cli
