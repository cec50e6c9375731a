// What a trained network says of samples, batch after batch.
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
  // Compiles for `rows` rows at a time. Both outlive the predictor.
  Predictor(const TrainedModel& model, ops::Backend& backend, int64_t rows);
  ~Predictor();

  int64_t outputs() const;  // numbers of a sample
  // Logits, in regression the numbers predicted, [rows, outputs()]. `inputs` has room for the rows
  // of the constructor, of which the first `rows` are samples. Valid until the next call.
  std::span<const float> run(const std::byte* inputs, int64_t rows);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::train
