#include "trainer/infer/generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/error.h"
#include "core/random.h"
#include "model/context.h"

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

constexpr int64_t kPromptPart = 64;  // tokens of a prompt that are read at a time

// Returns the number of logits of a token. Throws ConfigError if some tokens have none.
int64_t outputs_of(const model::Graph& graph) {
  const model::Node& head = graph.nodes[static_cast<size_t>(graph.nodes.back().inputs[0])];
  const int64_t outputs = head.signature.output[1], tokens = graph.input.classes;
  if (outputs >= tokens) return outputs;
  throw ConfigError(
      "model", fmt::format("layer '{}' has {} outputs for {} tokens", head.name, outputs, tokens));
}

// A sequence that is being continued.
struct Sequence {
  std::vector<int32_t> tokens = {};  // empty: the row is not in use
  uint64_t number = 0;
  int64_t first = 0;  // tokens before this one have been forgotten
  int64_t read = 0;   // those before this one, from `first` on, are in the cache

  int64_t unread() const { return std::ssize(tokens) - read; }
};

// Reads up to `length` tokens of each sequence at a time.
class Reader {
 public:
  Reader(const TrainedModel& model, ops::Backend& backend, int64_t rows, int64_t length,
         bool output)
      : device_(backend.device()),
        length_(length),
        positions_(model.graph().input.input.shape[0]),
        tokens_(static_cast<size_t>(rows * length)),
        starts_(static_cast<size_t>(rows)) {
    model::Parameters parameters = model.parameters();
    program_ = model::Program::compile(model.graph(), backend,
                                       {.batch = rows,
                                        .training = false,
                                        .dtype = parameters.dtype,
                                        .output = output,
                                        .loss = false,
                                        .part = length},
                                       parameters);
    activations_ = device_.allocate(program_->activation_bytes());
    device_tokens_ = device_.allocate(tokens_.size() * sizeof(int32_t));
    device_starts_ = device_.allocate(starts_.size() * sizeof(int32_t));
    context_.emplace(*program_, model.arrays(), activations_.data());
    context_->bind(model::Port::kInput, device_tokens_.data());
    context_->bind(model::Port::kStarts, device_starts_.data());
  }

  size_t cache_bytes() const { return program_->cache_bytes(); }
  void bind(model::Port port, const Buffer& memory) { context_->bind(port, memory.data()); }

  // Reads the next tokens of each sequence, but not its last `left` ones.
  void read(std::span<Sequence> sequences, int64_t left, Stream& stream) {
    std::ranges::fill(tokens_, 0);
    for (size_t row = 0; row < sequences.size(); ++row) {
      Sequence& sequence = sequences[row];
      const int64_t count = std::clamp(sequence.unread() - left, int64_t{0}, length_);
      // Positions beyond the cache are padding.
      starts_[row] = static_cast<int32_t>(count > 0 ? sequence.read - sequence.first : positions_);
      std::copy_n(sequence.tokens.begin() + sequence.read, count,
                  tokens_.begin() + static_cast<int64_t>(row) * length_);
      sequence.read += count;
    }
    device_.copy(device_tokens_.data(), tokens_.data(), device_tokens_.bytes(), stream);
    device_.copy(device_starts_.data(), starts_.data(), device_starts_.bytes(), stream);
    context_->forward(stream);
  }

 private:
  Device& device_;
  int64_t length_;
  int64_t positions_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> starts_;
  std::unique_ptr<const model::Program> program_;
  std::optional<model::Context> context_;
  Buffer activations_, device_tokens_, device_starts_;
};

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

void require_language_model(const model::Graph& graph) {
  const auto refuse = [](const std::string& why) { throw ConfigError("model", why); };
  if (graph.input.input.dtype != DType::kI32 || graph.input.target.shape.rank() != 1) {
    refuse("the network does not predict tokens, so it cannot generate any");
  }
  for (const model::Node& node : std::span(graph.nodes).first(graph.nodes.size() - 1)) {
    if (node.layer->is_causal()) continue;
    const std::string_view kind = node.layer->kind();
    if (kind == "embedding") {
      refuse(
          fmt::format("layer '{}': a network with embedding.segment_end reads segments of whole "
                      "samples, so it cannot generate tokens",
                      node.name));
    }
    const char* remedy = kind == "attention"               ? "; set attention.causal"
                         : kind == "lstm" || kind == "gru" ? "; it is bidirectional"
                                                           : "";
    refuse(
        fmt::format("layer '{}': {} reads later tokens, too, so the network cannot generate any{}",
                    node.name, kind, remedy));
  }
}

bool reads_any_length(const model::Graph& graph) {
  return std::ranges::none_of(graph.nodes, [](const model::Node& node) {
    return node.layer->kind() == "attention" ||
           std::ranges::any_of(node.signature.parameters,
                               [](const auto& parameter) { return parameter.by_position; });
  });
}

struct Generator::State {
  State(const TrainedModel& model, ops::Backend& backend, int64_t rows)
      : device((require_language_model(model.graph()), backend.device())),
        length(model.graph().input.input.shape[0]),
        vocab_size(model.graph().input.classes),
        outputs(outputs_of(model.graph())),
        stream(device.create_stream(StreamKind::kCompute)),
        token(model, backend, rows, 1, /*output=*/true),
        prompt(model, backend, rows, std::min(length, kPromptPart), /*output=*/false),
        cache(device.allocate(token.cache_bytes())),
        device_logits(device.allocate(static_cast<size_t>(rows * outputs) * sizeof(float))),
        logits(static_cast<size_t>(rows * outputs)),
        sequences(static_cast<size_t>(rows)) {
    token.bind(model::Port::kCache, cache);
    token.bind(model::Port::kOutput, device_logits);
    prompt.bind(model::Port::kCache, cache);
  }

  Sequence& sequence(int64_t row) { return sequences.at(static_cast<size_t>(row)); }

  Device& device;
  int64_t length;
  int64_t vocab_size;
  int64_t outputs;  // logits of a token: at least vocab_size
  std::unique_ptr<Stream> stream;
  Reader token;   // of the last token of each sequence
  Reader prompt;  // of those before
  Buffer cache, device_logits;
  std::vector<float> logits;  // [rows, outputs]
  std::vector<Sequence> sequences;
};

Generator::Generator(const TrainedModel& model, ops::Backend& backend, int64_t rows)
    : state_(std::make_unique<State>(model, backend, rows)) {}
Generator::~Generator() = default;

int64_t Generator::length() const { return state_->length; }
int64_t Generator::vocab_size() const { return state_->vocab_size; }

void Generator::begin(int64_t row, std::vector<int32_t> tokens, uint64_t number) {
  state_->sequence(row) = {.tokens = std::move(tokens), .number = number};
}

void Generator::end(int64_t row) { state_->sequence(row) = {}; }

const std::vector<int32_t>& Generator::tokens(int64_t row) const {
  return state_->sequence(row).tokens;
}

void Generator::extend(const Sampling& sampling) {
  State& s = *state_;
  for (Sequence& sequence : s.sequences) {
    const int64_t end = std::ssize(sequence.tokens);
    if (end - sequence.first <= s.length) continue;
    sequence.first = sequence.read = end - std::max(s.length / 2, int64_t{1});
  }
  while (std::ranges::any_of(s.sequences, [](const Sequence& one) { return one.unread() > 1; })) {
    s.prompt.read(s.sequences, /*left=*/1, *s.stream);
    s.stream->synchronize();
  }
  s.token.read(s.sequences, /*left=*/0, *s.stream);
  s.device.copy(s.logits.data(), s.device_logits.data(), s.device_logits.bytes(), *s.stream);
  s.stream->synchronize();
  const auto outputs = static_cast<size_t>(s.outputs);
  for (size_t row = 0; row < s.sequences.size(); ++row) {
    Sequence& sequence = s.sequences[row];
    if (sequence.tokens.empty()) continue;
    const Random random(sampling.seed, RandomPurpose::kSampling, sequence.number);
    const float drawn = random.uniform_at(sequence.tokens.size());
    sequence.tokens.push_back(
        sample_token(std::span(s.logits).subspan(row * outputs, static_cast<size_t>(s.vocab_size)),
                     sampling, double{drawn}));
  }
}

}  // namespace trireme::train
