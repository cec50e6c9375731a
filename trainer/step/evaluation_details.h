// What an evaluation finds beside its means: which classes are taken for which, and of what the
// network is sure and wrong.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "trainer/step/class_scores.h"

namespace trireme::train {

struct Mistake {
  int64_t index = 0;  // of the sample
  std::string where;  // Dataset::where
  int label = 0;
  int predicted = 0;       // kNothing: the logits are not finite
  double probability = 0;  // of the predicted class; NaN with kNothing
  std::string png;         // base64, as the network sees it before normalization; empty: no image
};

struct EvaluationDetails {
  // Samples by true class (rows) and predicted class, but for those with kNothing; empty above
  // kMaxConfused classes.
  std::vector<std::vector<int64_t>> confusion;
  std::vector<Mistake> mistakes;  // in the order of comes_before, at most kMaxMistakes
};
inline constexpr int kMaxConfused = 200;
inline constexpr size_t kMaxMistakes = 24;

// Whether a mistake is listed before another one: first those without a probability (NaN), then the
// surest.
bool comes_before(double probability, int64_t index, double other, int64_t other_index);

// Collects them from this rank's batches.
class DetailsCollector {
 public:
  // Of classes, each sample of one; `outputs` numbers a sample are what the network says.
  static bool applies_to(const data::SampleSpec& spec, int64_t outputs);
  explicit DetailsCollector(const data::SampleSpec& spec);

  // `logits` are [batch.rows, classes], `samples` what they say of each row.
  void add(const data::Batch& batch, std::span<const float> logits,
           std::span<const Classified> samples);
  // Of all ranks, which call it together.
  EvaluationDetails gather(comm::Communicator& communicator, const data::Dataset& dataset);

 private:
  struct Found {
    double probability = 0;
    int64_t index = 0;
    int label = 0;
    int predicted = 0;
    std::vector<std::byte> input;

    // On all ranks the same.
    bool operator<(const Found& other) const {
      return comes_before(probability, index, other.probability, other.index);
    }
  };
  void keep(Found found, const std::byte* input);
  void forget_all_but_the_surest(comm::Communicator& communicator);
  std::vector<Mistake> describe(const data::Dataset& dataset) const;

  data::SampleSpec spec_;
  std::vector<double> confusion_;
  std::vector<Found> found_;  // sorted
};

}  // namespace trireme::train
