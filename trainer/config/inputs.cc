#include "trainer/config/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/error.h"
#include "data/tokenizers/tokenizer.h"
#include "trainer/config/parameter_groups.h"

namespace trireme::train {
namespace {

// Throws ConfigError if attention sees the next tokens, which are the labels.
void require_causal(const model::Graph& graph) {
  for (const model::Node& node : graph.nodes) {
    if (node.layer->kind() != "attention" || node.layer->is_causal()) continue;
    throw ConfigError("model",
                      fmt::format("layer '{}' (attention): sees the next tokens, which are the "
                                  "labels; set attention.causal, or data.mask for masked language "
                                  "modeling",
                                  node.name));
  }
}

std::string named(const model::Node& node) {
  return fmt::format("layer '{}' ({})", node.name, node.layer->kind());
}

bool is_padding(const model::Layer::TokenField& field) {
  return field.name.ends_with("padding_token");
}

// Throws ConfigError if what a layer computes depends on the padding behind the tokens of a sample.
void require_skipped_padding(const model::Graph& graph, int32_t padding) {
  for (const model::Node& node : graph.nodes) {
    const bool reads_rows = std::ranges::any_of(node.inputs, [&](int input) {
      return input < 0 || graph.nodes[static_cast<size_t>(input)].signature.output.rank() > 1;
    });
    if (!reads_rows || node.layer->skips_padding()) continue;
    const bool can_skip = std::ranges::any_of(node.layer->token_fields(), is_padding);
    throw ConfigError(
        "data.length_buckets",
        fmt::format("{} reads padding, the amount of which would depend on the batch; {}",
                    named(node),
                    can_skip ? fmt::format("set padding_token: {}", padding)
                             : "it cannot skip it, so remove data.length_buckets"));
  }
}

// Throws ConfigError if the networks have parameters of different shapes.
void require_same_parameters(const model::Graph& whole, const model::Graph& shorter) {
  for (size_t n = 0; n < whole.nodes.size(); ++n) {
    const auto &all = whole.nodes[n].signature.parameters,
               &parameters = shorter.nodes[n].signature.parameters;
    for (size_t p = 0; p < all.size(); ++p) {
      if (all[p].by_position || all[p].shape == parameters[p].shape) continue;
      throw ConfigError("data.length_buckets",
                        fmt::format("the shape of parameter {} depends on the length of samples",
                                    parameter_name(whole.nodes[n], all[p])));
    }
  }
}

}  // namespace

std::unique_ptr<data::Dataset> open_data(const Config& config, data::Part part,
                                         const std::function<void(std::string_view)>& progress,
                                         const data::TableColumns& columns) {
  try {
    return data::open_dataset(
        config.run.data(), part,
        {.seed = config.run.seed(), .progress = progress, .columns = columns});
  } catch (const ConfigError& error) {
    throw config.located(error);
  }
}

model::ModelInput model_input(const data::SampleSpec& spec) {
  return {spec.input, spec.target, spec.classes,   spec.scale,
          spec.mean,  spec.stddev, spec.vocab_size};
}

model::Graph build_network(const Config& config, const data::SampleSpec& spec) {
  try {
    model::Graph graph = model::build_graph(config.run.model(), model_input(spec));
    if (spec.has_token_labels() && !config.run.data().has_mask()) require_causal(graph);
    ParameterGroups(config.run.optimizer()).check(graph);
    return graph;
  } catch (const ConfigError& error) {
    throw config.located(error);
  }
}

std::string padding_problem(const Config& config, const model::Graph& graph,
                            const data::Dataset& texts) {
  if (!config.run.data().has_labeled_text()) return "";
  const int32_t padding = texts.tokenizer()->special().padding();
  for (const model::Node& node : graph.nodes) {
    for (const model::Layer::TokenField& set : node.layer->token_fields()) {
      if (!is_padding(set) || set.token.value_or(padding) == padding) continue;
      return fmt::format("{} has {}: {}, but texts are padded with {}", named(node), set.name,
                         *set.token, padding);
    }
  }
  return "";
}

std::vector<model::Graph> build_shorter_networks(const Config& config, const model::Graph& whole,
                                                 const data::OrderOptions& order,
                                                 const data::Dataset& training) {
  std::vector<model::Graph> networks;
  if (!order.buckets) return networks;
  const auto tokenizer = training.tokenizer();
  try {
    require_skipped_padding(whole, tokenizer ? tokenizer->special().padding() : 0);
    const std::string problem = padding_problem(config, whole, training);
    if (!problem.empty()) throw ConfigError("data.length_buckets", problem);
    for (const int64_t length : order.buckets->ends()) {
      if (length == whole.input.input.shape[0]) continue;
      model::ModelInput input = whole.input;
      input.input.shape = Shape{length};
      networks.push_back(model::build_graph(config.run.model(), input));
      require_same_parameters(whole, networks.back());
    }
  } catch (const ConfigError& error) {
    throw config.located(error);
  }
  return networks;
}

}  // namespace trireme::train
