#include "trainer/infer/generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/random.h"
#include "model/model.pb.h"

namespace trireme::train {
namespace {

struct Candidate {
  int32_t token;
  double weight;  // e^(logit / temperature), relative to that of the most probable token
};

// Returns the tokens that may be drawn, the most probable one first.
std::vector<Candidate> candidates(std::span<const float> logits, const Sampling& sampling) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto kept =
      sampling.top_k > 0 ? std::min<int64_t>(sampling.top_k, std::ssize(order)) : std::ssize(order);
  const auto more_probable = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), more_probable);
  order.resize(static_cast<size_t>(kept));
  std::vector<Candidate> all;
  const double largest{logits[static_cast<size_t>(order[0])]};
  for (const int32_t token : order) {
    const double logit{logits[static_cast<size_t>(token)]};
    all.push_back({token, std::exp((logit - largest) / sampling.temperature)});
  }
  return all;
}

// Throws ConfigError unless the network predicts the next token from those before it.
void require_causal(const Config& config, const model::ModelInput& input) {
  const auto refuse = [](const std::string& why) { throw ConfigError("model", why); };
  if (input.input.dtype != DType::kI32 || input.target.shape.rank() != 1) {
    refuse("the network does not predict tokens, so it cannot generate any");
  }
  const NetworkConfig network = model::network_of(config.run.model(), input);
  for (const LayerConfig& layer : network.layer()) {
    if (!layer.has_attention() || layer.attention().causal()) continue;
    refuse(
        fmt::format("layer '{}': attention reads later tokens, too, so the network cannot "
                    "generate any; set attention.causal",
                    layer.name()));
  }
}

}  // namespace

int32_t sample_token(std::span<const float> logits, const Sampling& sampling, double random) {
  if (std::ranges::any_of(logits, [](float logit) { return std::isnan(logit); })) {
    throw Error("the network's output is NaN");
  }
  if (sampling.temperature == 0) {
    return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  }
  std::vector<Candidate> all = candidates(logits, sampling);
  const auto total = [&] {
    return std::accumulate(all.begin(), all.end(), 0.0,
                           [](double sum, const Candidate& one) { return sum + one.weight; });
  };
  double rest = sampling.top_p * total();
  const auto end = std::ranges::find_if(all, [&](const Candidate& one) {
    rest -= one.weight;
    return rest <= 0;
  });
  if (end != all.end()) all.erase(end + 1, all.end());
  rest = random * total();
  for (const Candidate& one : all) {
    rest -= one.weight;
    if (rest < 0) return one.token;
  }
  return all.back().token;  // because of rounding
}

Generator::Generator(const TrainedModel& model, const Config& config, ops::Backend& backend,
                     int64_t rows)
    : predictor_((require_causal(config, model.graph().input), model), backend, rows),
      length_(model.graph().input.input.shape[0]),
      vocab_size_(predictor_.outputs() / length_),
      inputs_(static_cast<size_t>(rows * length_)) {}

void Generator::extend(std::span<Sequence* const> sequences, const Sampling& sampling) {
  // Positions after the last token are padding, which earlier ones do not attend to.
  std::ranges::fill(inputs_, 0);
  const auto window = [&](const Sequence& sequence) {
    return std::min(std::ssize(sequence.tokens), length_);
  };
  for (size_t row = 0; row < sequences.size(); ++row) {
    const std::vector<int32_t>& tokens = sequences[row]->tokens;
    std::copy(tokens.end() - window(*sequences[row]), tokens.end(),
              inputs_.begin() + static_cast<int64_t>(row) * length_);
  }
  const std::span<const float> logits =
      predictor_.run(reinterpret_cast<const std::byte*>(inputs_.data()), std::ssize(sequences));
  for (size_t row = 0; row < sequences.size(); ++row) {
    Sequence& sequence = *sequences[row];
    const int64_t last = static_cast<int64_t>(row) * length_ + window(sequence) - 1;
    const Random random(sampling.seed, RandomPurpose::kSampling, sequence.number);
    const float drawn = random.uniform_at(sequence.tokens.size());
    sequence.tokens.push_back(sample_token(
        logits.subspan(static_cast<size_t>(last * vocab_size_), static_cast<size_t>(vocab_size_)),
        sampling, double{drawn}));
  }
}

}  // namespace trireme::train
