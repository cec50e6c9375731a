#include "trainer/step/evaluation_details.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "comm/control.h"
#include "core/text.h"
#include "data/images/codec.h"
#include "data/sample_images.h"
#include "trainer/base/json.h"
#include "trainer/step/probabilities.h"

namespace trireme::train {
namespace {

using Json = nlohmann::json;

Json row_of(const Mistake& mistake) {
  return {mistake.index,     mistake.where,       mistake.label,
          mistake.predicted, mistake.probability, mistake.png};
}

Mistake mistake_from(const Json& json) {
  return {json[0], json[1], json[2], json[3], to_number(json[4]), json[5]};
}

}  // namespace

bool listed_before(double probability, int64_t index, double other, int64_t other_index) {
  const double own = std::isnan(probability) ? 2 : probability;
  other = std::isnan(other) ? 2 : other;
  return own != other ? own > other : index < other_index;
}

bool DetailsCollector::applies_to(const data::SampleSpec& spec, int64_t outputs) {
  return is_single_label(spec, outputs) && outputs == spec.classes;
}

DetailsCollector::DetailsCollector(const data::SampleSpec& spec) : spec_(spec) {
  if (spec.classes > kMaxConfusionClasses) return;
  confusion_.resize(static_cast<size_t>(spec.classes) * static_cast<size_t>(spec.classes));
}

void DetailsCollector::add(const data::Batch& batch, std::span<const float> logits,
                           std::span<const Classified> samples) {
  const auto classes = static_cast<size_t>(spec_.classes);
  for (int64_t row = 0; row < batch.rows; ++row) {
    const auto i = static_cast<size_t>(row);
    const std::span<const float> row_logits = logits.subspan(i * classes, classes);
    const auto [label, predicted] = samples[i];
    const std::byte* input = batch.inputs + i * spec_.input.bytes();
    if (predicted == kNoClass) {
      constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
      add_mistake({kNan, batch.samples[row], label, kNoClass, {}}, input);
      continue;
    }
    if (!confusion_.empty()) {
      confusion_[static_cast<size_t>(label) * classes + static_cast<size_t>(predicted)] += 1;
    }
    if (label == predicted) continue;
    const double probability = softmax(row_logits)[static_cast<size_t>(predicted)];
    add_mistake({probability, batch.samples[row], label, predicted, {}}, input);
  }
}

void DetailsCollector::add_mistake(Found found, const std::byte* input) {
  if (found_.size() == kMaxMistakes && !(found < found_.back())) return;
  found.input.assign(input, input + spec_.input.bytes());
  found_.insert(std::ranges::upper_bound(found_, found, std::less<>{}), std::move(found));
  if (found_.size() > kMaxMistakes) found_.pop_back();
}

// Removes mistakes that are not among the first kMaxMistakes of all ranks, so that ranks exchange
// the images of those only.
void DetailsCollector::drop_all_but_most_confident(comm::Communicator& communicator) {
  Json own = Json::array();
  for (const Found& found : found_) own.push_back({found.probability, found.index});
  std::vector<Found> all;
  for (const std::string& text : all_gather(communicator, json_text(std::move(own)))) {
    for (const Json& row : Json::parse(text)) {
      all.push_back({to_number(row[0]), row[1], 0, 0, {}});
    }
  }
  std::ranges::sort(all, std::less<>{});
  if (all.size() <= kMaxMistakes) return;
  std::erase_if(found_, [&](const Found& found) { return !(found < all[kMaxMistakes]); });
}

std::vector<Mistake> DetailsCollector::describe(const data::Dataset& dataset) const {
  std::vector<Mistake> mistakes;
  for (const Found& found : found_) {
    Mistake mistake{found.index,     dataset.where(found.index), found.label,
                    found.predicted, found.probability,          {}};
    if (data::are_images(spec_.input)) {
      mistake.png = base64(data::encode_png(data::images_of(spec_.input, found.input)[0].view()));
    }
    mistakes.push_back(std::move(mistake));
  }
  return mistakes;
}

EvaluationDetails DetailsCollector::gather(comm::Communicator& communicator,
                                           const data::Dataset& dataset) {
  EvaluationDetails details;
  drop_all_but_most_confident(communicator);
  Json own = Json::array();
  for (const Mistake& mistake : describe(dataset)) own.push_back(row_of(mistake));
  for (const std::string& text : all_gather(communicator, json_text(std::move(own)))) {
    for (const Json& row : Json::parse(text)) details.mistakes.push_back(mistake_from(row));
  }
  std::ranges::stable_sort(details.mistakes, [](const Mistake& a, const Mistake& b) {
    return listed_before(a.probability, a.index, b.probability, b.index);
  });
  if (confusion_.empty()) return details;
  comm::sum(communicator, confusion_);
  const auto classes = static_cast<size_t>(spec_.classes);
  for (size_t label = 0; label < classes; ++label) {
    const auto row = confusion_.begin() + static_cast<ptrdiff_t>(label * classes);
    details.confusion.emplace_back(row, row + static_cast<ptrdiff_t>(classes));
  }
  return details;
}

}  // namespace trireme::train
