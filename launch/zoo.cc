// `trireme zoo`: lists the built-in networks.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "launch/cli.h"
#include "launch/commands.h"
#include "launch/options.h"
#include "launch/table.h"
#include "model/program.h"
#include "trainer/config/device.h"
#include "trainer/config/inputs.h"

namespace trireme::cli {
namespace {

struct Network {
  std::string name;
  model::ZooDefaults defaults;
  int64_t parameters = 0;
  double forward_flops = 0;  // per sample
};

// Compiles the network for a batch of one sample and returns its numbers.
Network measure(const std::string& name) {
  const auto alone = comm::create_local_communicator();
  TargetOptions options;
  options.name = name;
  const Target target = load_target(options, 1);
  const auto device = train::create_device(target.config, *alone);
  const auto backend = train::create_backend(target.config, *device);
  const model::Graph graph = train::build_network(target.config, target.samples);
  model::Parameters parameters;
  const auto program = model::Program::compile(
      graph, *backend,
      {.batch = 1, .training = false, .dtype = train::compute_dtype(target.config)}, parameters);
  return {name, model::zoo_defaults(name), parameters.count(), program->forward_flops()};
}

void print_table(const std::vector<Network>& networks) {
  Table table({{"network", false, 9},
               {"input", false, 5},
               {"classes", true, 3},
               {"parameters", true, 7},
               {"FLOP", true, 6},
               {"batch", true, 2},
               {"", false, 0}});
  for (const Network& network : networks) {
    table.add(
        {network.name, network.defaults.input.to_string(), std::to_string(network.defaults.classes),
         format_count(static_cast<double>(network.parameters)), format_count(network.forward_flops),
         std::to_string(network.defaults.batch), network.defaults.description});
  }
  std::fputs(table.fitting().c_str(), stdout);
  fmt::print(
      "\nFLOP: per sample in the forward pass; a multiply-add counts as two. Input, classes and "
      "batch are the usual values; others work too.\nUse model {{ zoo {{ name: \"resnet18\" }} }} "
      "in a configuration. `trireme inspect resnet18` prints the layers.\n");
}

void print_json(const std::vector<Network>& networks) {
  auto list = nlohmann::ordered_json::array();
  for (const Network& network : networks) {
    const Shape& input = network.defaults.input;
    list.push_back({{"name", network.name},
                    {"input", std::vector<int64_t>(input.begin(), input.end())},
                    {"classes", network.defaults.classes},
                    {"parameters", network.parameters},
                    {"forward_flops", network.forward_flops},
                    {"batch", network.defaults.batch},
                    {"about", network.defaults.description}});
  }
  fmt::print("{}\n", list.dump());
}

int zoo(bool json) {
  std::vector<Network> networks;
  for (const std::string& name : model::zoo_names()) networks.push_back(measure(name));
  json ? print_json(networks) : print_table(networks);
  return 0;
}

}  // namespace

void add_zoo(ArgumentParser app, Command& chosen) {
  auto json = std::make_shared<bool>(false);
  ArgumentParser command = app.add_command("zoo", "List the built-in networks");
  command.add_flag("--json", *json, "Print the networks as one JSON array");
  command.epilog(R"(Examples:
  trireme zoo
  trireme inspect resnet50 --batch 32
)");
  command.on_chosen([json, &chosen] { chosen.run = on_one_rank([json] { return zoo(*json); }); });
}

}  // namespace trireme::cli
