// Computes the outputs of a trained network for batches of samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "ops/backend.h"
#include "trainer/infer/trained_model.h"

namespace trireme::train {

class Predictor {
 public:
  // Compiles the network for batches of `rows` rows. `model` and `backend` must outlive the
  // predictor.
  Predictor(const TrainedModel& model, ops::Backend& backend, int64_t rows);
  ~Predictor();

  // Returns the number of outputs of a sample.
  int64_t outputs() const;
  // Returns logits, or predicted numbers in regression, as [rows, outputs()], valid until the next
  // call. `inputs` has as many rows as given to the constructor; only the first `rows` are samples.
  std::span<const float> run(const std::byte* inputs, int64_t rows);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::train
