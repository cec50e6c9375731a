// Continues sequences of tokens with a trained language model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/infer/predictor.h"

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

class Generator {
 public:
  // For up to `rows` sequences at a time. Throws ConfigError if the network is not a causal language
  // model. `model` and `backend` must outlive the generator.
  Generator(const TrainedModel& model, const Config& config, ops::Backend& backend, int64_t rows);

  // Returns the number of tokens that the network can read.
  int64_t length() const { return length_; }
  int64_t vocab_size() const { return vocab_size_; }

  struct Sequence {
    std::vector<int32_t> tokens;  // not empty
    uint64_t number = 0;          // selects the random numbers, together with the position
  };
  // Appends a token to each sequence. Of a sequence that is longer than length(), the network reads
  // the last length() tokens. The token does not depend on the other sequences, except by rounding.
  void extend(std::span<Sequence* const> sequences, const Sampling& sampling);

 private:
  Predictor predictor_;
  int64_t length_;
  int64_t vocab_size_;
  std::vector<int32_t> inputs_;  // [rows, length]
};

}  // namespace trireme::train
