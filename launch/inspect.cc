#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "comm/control.h"
#include "core/text.h"
#include "launch/commands.h"
#include "launch/options.h"
#include "trainer/device.h"
#include "trainer/loading.h"
#include "trainer/optimizer.h"
#include "trainer/step.h"
#include "trainer/trainer.h"

namespace trireme {
namespace {

struct Options : TargetOptions {
  int ranks = 0;
  bool listing = false;
};

std::string flops_text(double flops) { return flops > 0 ? format_count(flops) : "-"; }

void print_layers(const Program& program) {
  const std::vector<LayerReport> layers = program.layers();
  size_t name_width = 5;
  size_t kind_width = 4;
  size_t shape_width = 6;
  for (const LayerReport& layer : layers) {
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
  for (const LayerReport& layer : layers) {
    parameters += layer.parameters;
    row(layer.name, layer.kind, layer.output.to_string(),
        layer.parameters > 0 ? fmt::format("{}", layer.parameters) : "-",
        flops_text(layer.forward_flops), flops_text(layer.backward_flops));
  }
  row("total", "", "", fmt::format("{}", parameters), flops_text(program.forward_flops()),
      flops_text(program.backward_flops()));
}

void print_memory(const std::vector<std::pair<std::string, size_t>>& parts, int ranks) {
  fmt::print("\nMemory of each of {} rank{}, planned, in bytes\n", ranks, ranks == 1 ? "" : "s");
  size_t total = 0;
  const auto row = [](const std::string& name, size_t bytes) {
    fmt::print("  {:<34} {:>16}  {:>10}\n", name, bytes, format_bytes(static_cast<double>(bytes)));
  };
  for (const auto& [name, bytes] : parts) {
    if (bytes == 0) continue;
    row(name, bytes);
    total += bytes;
  }
  row("total", total);
}

// The plan is the same on every rank: rank 0 makes it, alone.
void print_plan(const Options& options, const Target& target, const Graph& graph, int ranks) {
  const Config& config = target.config;
  const BatchPlan batch = plan_batch(config, ranks);
  const auto alone = create_local_communicator();
  const auto device = create_device(config, *alone);
  const auto backend = create_backend(config, *device);
  Parameters parameters;
  const auto program = Program::compile(
      graph, *backend,
      {.batch = batch.micro, .dtype = compute_dtype(config), .accumulate = batch.passes > 1},
      parameters);
  const Optimizer optimizer(config.run, parameters, *backend);

  const SampleSpec& samples = target.samples;
  fmt::print("{}: input {}, {}, {} samples a rank in {} pass{} of {}\n\n", model_name(config.run),
             samples.input.to_string(),
             samples.classes > 0 ? fmt::format("{} classes", samples.classes)
                                 : "target " + samples.target.to_string(),
             batch.capacity, batch.passes, batch.passes == 1 ? "" : "es", batch.micro);
  print_layers(*program);
  const LowPrecisionCopy low_precision(parameters, *backend);
  // Of a CPU those that the loader fills ahead.
  const int threads =
      loader_threads(config, target.in_memory, spare_cores(config, *alone, *device));
  const int batches = device->kind() == DeviceKind::kCpu ? batches_in_memory(config, threads)
                                                         : steps_under_way(device->kind());
  const size_t sample = samples.input.bytes() + samples.target.bytes();
  // Running values are kept as they were before each step under way.
  const auto copies = static_cast<size_t>(1 + steps_under_way(device->kind()));
  print_memory({{"parameters", parameters.array_bytes() + copies * parameters.running_bytes()},
                {fmt::format("parameters in {}", Precision_Name(config.run.train().precision())),
                 low_precision.bytes()},
                {"gradients", parameters.array_bytes()},
                {"optimizer state", optimizer.state_bytes()},
                {"activations and workspaces", program->activation_bytes()},
                {fmt::format("batches ({} of {} samples)", batches, batch.capacity),
                 static_cast<size_t>(batches) * static_cast<size_t>(batch.capacity) * sample}},
               ranks);
  if (options.listing) fmt::print("\n{}", program->listing());
}

int inspect(const Options& options, Communicator& communicator) {
  const int ranks = options.ranks > 0 ? options.ranks : communicator.size();
  Target target;
  Graph graph;
  together(communicator, [&] {
    target = load_target(options, ranks);
    plan_batch(target.config, ranks);
    graph = build_network(target.config, target.samples);
  });
  if (communicator.rank() == 0) print_plan(options, target, graph, ranks);
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, Command& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand(
      "inspect", "Print a network's layers, shapes, parameters, operations and memory plan");
  options->add_to(command);
  command.add_option("--ranks", options->ranks, "Ranks to plan for; unset: the running ones")
      ->check(CLI::PositiveNumber);
  command.add_flag("--listing", options->listing, "The compiled program, one line an operation");
  command.callback([options, &chosen] {
    chosen.run = [options](Communicator& communicator) { return inspect(*options, communicator); };
  });
}

}  // namespace trireme
