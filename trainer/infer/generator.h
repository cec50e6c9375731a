// Continues sequences of tokens with a trained language model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/backend.h"
#include "trainer/infer/trained_model.h"

namespace trireme::train {

// How the next token is drawn from the logits.
struct Sampling {
  double temperature = 1;  // divides the logits; 0 takes the most probable token
  int64_t top_k = 0;       // only the k most probable tokens; 0 for all
  double top_p = 1;        // only the most probable tokens whose probabilities add up to this
  uint64_t seed = 1;
};

// Returns a token. `random` is uniform in [0, 1). Of equally probable tokens, the one with the
// lower index comes first. Throws Error if a logit is NaN.
int32_t sample_token(std::span<const float> logits, const Sampling& sampling, double random);

// Throws ConfigError unless the network predicts the next token from those before it.
void require_language_model(const model::Graph& graph);

// Returns whether the network's parameters and what it computes do not depend on the length of its
// samples: it has neither attention nor positions, as a network of LSTM or GRU layers.
bool reads_any_length(const model::Graph& graph);

// Continues up to `rows` sequences at a time. The keys and values of the tokens read are kept, so
// that the network reads each token once. When a sequence has become longer than length(), the
// network reads its last length() / 2 tokens again, and goes on from there.
class Generator {
 public:
  // Throws ConfigError if the network is not a causal language model. `model` and `backend` must
  // outlive the generator.
  Generator(const TrainedModel& model, ops::Backend& backend, int64_t rows);
  ~Generator();

  // Returns the number of tokens that the network can read.
  int64_t length() const;
  int64_t vocab_size() const;

  // Begins a sequence in this row, in place of the one before, with 1 to length() tokens. `number`
  // selects its random numbers, together with the position.
  void begin(int64_t row, std::vector<int32_t> tokens, uint64_t number);
  // Ends the sequence of this row, if any.
  void end(int64_t row);
  // Appends a token to each sequence that has begun. The token does not depend on the other
  // sequences, except by rounding.
  void extend(const Sampling& sampling);
  const std::vector<int32_t>& tokens(int64_t row) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::train
