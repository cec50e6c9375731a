#include "data/soft_labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "data/samples.h"

namespace trireme::data {
namespace {

class SoftLabels final : public WrappedDataset {
 public:
  explicit SoftLabels(std::unique_ptr<Dataset> dataset)
      : WrappedDataset(std::move(dataset)), spec_(inner().spec()) {
    spec_.target = {DType::kF32, Shape{spec_.classes}, Layout::row_major()};
  }

  const SampleSpec& spec() const override { return spec_; }
  void read(SampleId id, std::byte* input, std::byte* target) const override {
    int32_t label = 0;
    inner().read(id, input, reinterpret_cast<std::byte*>(&label));
    if (label < 0 || label >= spec_.classes) {
      throw DataError(where(id.index),
                      fmt::format("label {} is not in [0, {})", label, spec_.classes));
    }
    auto* probabilities = reinterpret_cast<float*>(target);
    std::fill_n(probabilities, spec_.classes, 0.0f);
    probabilities[label] = 1;
  }

 private:
  SampleSpec spec_;
};

}  // namespace

std::unique_ptr<Dataset> with_soft_labels(std::unique_ptr<Dataset> dataset) {
  const SampleSpec& spec = dataset->spec();
  if (spec.classes < 1 || spec.target != label_spec()) {
    throw ConfigError("data.mix",
                      fmt::format("only samples with class labels can be mixed, and the targets "
                                  "are {}: {}",
                                  spec.target.to_string(), dataset->description()));
  }
  return std::make_unique<SoftLabels>(std::move(dataset));
}

}  // namespace trireme::data
