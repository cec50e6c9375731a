#include "trainer/step/class_scores.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "comm/control.h"
#include "core/parallel.h"

namespace trireme::train {
namespace {

// Returns the index of the largest logit, the first of equal ones (as the loss counts accuracy), or
// kNoClass if a logit is not finite. A single pass, since a row may have thousands.
int predicted_class(std::span<const float> logits) {
  constexpr uint32_t kExponent = 0x7f800000;  // all ones: infinite or NaN
  bool finite = true;
  size_t largest = 0;
  float value = logits[0];
  for (size_t i = 0; i < logits.size(); ++i) {
    finite &= (std::bit_cast<uint32_t>(logits[i]) & kExponent) != kExponent;
    if (logits[i] > value) {
      value = logits[i];
      largest = i;
    }
  }
  return finite ? static_cast<int>(largest) : kNoClass;
}

int label_of(const data::SampleSpec& spec, const std::byte* target) {
  if (spec.target.dtype == DType::kI32) {
    int32_t label = 0;
    std::memcpy(&label, target, sizeof label);
    return label;
  }
  const auto* probabilities = reinterpret_cast<const float*>(target);
  return static_cast<int>(std::max_element(probabilities, probabilities + spec.classes) -
                          probabilities);
}

}  // namespace

bool is_single_label(const data::SampleSpec& spec, int64_t outputs) {
  if (spec.classes < 2 || outputs < spec.classes) return false;
  const Shape& target = spec.target.shape;
  return target.rank() == 0 ||
         (spec.target.dtype == DType::kF32 && target.elements() == spec.classes);
}

std::vector<Classified> classify(const data::SampleSpec& spec, const data::Batch& batch,
                                 std::span<const float> logits, int64_t outputs) {
  const auto width = static_cast<size_t>(outputs);
  std::vector<Classified> samples(static_cast<size_t>(batch.rows));
  parallel_for(batch.rows, [&](int64_t begin, int64_t end) {
    for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) {
      samples[row] = {label_of(spec, batch.targets + row * spec.target.bytes()),
                      predicted_class(logits.subspan(row * width, width))};
    }
  });
  return samples;
}

void set_averages(std::span<const ClassScores> scores, EvaluationMetrics& metrics) {
  double classes = 0, precision = 0, recall = 0, f1 = 0;
  for (const ClassScores& one : scores) {
    if (one.support == 0 && one.predicted == 0) continue;
    ++classes;
    precision += one.precision();
    recall += one.recall();
    f1 += one.f1();
  }
  if (classes == 0) return;
  metrics.macro_precision = precision / classes;
  metrics.macro_recall = recall / classes;
  metrics.macro_f1 = f1 / classes;
}

bool ClassCounts::applies_to(const data::SampleSpec& spec, int64_t outputs) {
  return is_single_label(spec, outputs) && outputs <= kMaxScoredClasses;
}

void ClassCounts::add(std::span<const Classified> samples) {
  for (const auto& [label, predicted] : samples) {
    ++count(label, kSupport);
    if (predicted == kNoClass) continue;
    ++count(predicted, kPredicted);
    if (predicted == label) ++count(label, kTruePositives);
  }
}

std::vector<ClassScores> ClassCounts::gather(comm::Communicator& communicator) const {
  std::vector<double> counts = counts_;
  comm::sum(communicator, counts);
  const auto integer = [](double count) { return static_cast<int64_t>(count); };
  std::vector<ClassScores> scores;
  for (size_t at = 0; at < counts.size(); at += kKinds) {
    scores.push_back({.support = integer(counts[at + kSupport]),
                      .predicted = integer(counts[at + kPredicted]),
                      .true_positives = integer(counts[at + kTruePositives])});
  }
  return scores;
}

}  // namespace trireme::train
