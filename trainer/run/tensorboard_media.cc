#include "trainer/run/tensorboard_media.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/clock.h"
#include "data/sample_images.h"

namespace trireme::train {

TensorBoardMedia::TensorBoardMedia(const MetricsConfig& config, const data::Dataset& training,
                                   Step& step, Reporter& reporter)
    : training_(training),
      step_(step),
      reporter_(reporter),
      every_epochs_(config.histograms_every_epochs()),
      remaining_samples_(data::are_images(training.spec().input) ? config.images() : 0) {}

void TensorBoardMedia::log_samples(const data::Batch& batch, int64_t steps) {
  const auto rows = static_cast<size_t>(std::min(std::exchange(remaining_samples_, 0), batch.rows));
  if (rows == 0) return;
  SamplesRecord record;
  record.step = steps;
  record.spec = training_.spec().input;
  record.inputs.assign(batch.inputs, batch.inputs + rows * record.spec.bytes());
  record.labels =
      data::labels_of(training_, {batch.targets, rows * training_.spec().target.bytes()});
  reporter_.samples(std::move(record));
}

void TensorBoardMedia::log_histograms(int64_t epoch, int64_t steps, float gradient_scale) {
  if (every_epochs_ == 0 || epoch % every_epochs_ != 0 || !reporter_.ready_for_histograms()) return;
  const auto start = Clock::now();
  if (copy_seconds_ > kMaxTimeFraction * to_seconds(start - copied_at_)) return;
  HistogramsRecord record = copy(gradient_scale);
  record.step = steps;
  record.epoch = epoch;
  copied_at_ = Clock::now();
  copy_seconds_ = record.stall_seconds = to_seconds(copied_at_ - start);
  reporter_.histograms(std::move(record));
}

HistogramsRecord TensorBoardMedia::copy(float gradient_scale) const {
  HistogramsRecord record;
  const StateArrays& state = step_.state();
  std::span gradients(
      state.gradients().tensors);  // of all parameters that are not frozen, in the same order
  for (const StateArrays::Tensor& parameter : state.parameters().tensors) {
    if (!state.has(parameter)) continue;  // another pipeline stage has it
    const auto elements = static_cast<size_t>(parameter.spec.shape.elements());
    HistogramsRecord::Tensor& tensor = record.tensors.emplace_back();
    tensor.name = parameter.name;
    tensor.values.resize(elements);
    state.get_own(parameter, tensor.values);
    if (gradients.empty() || gradients.front().name != parameter.name) continue;
    tensor.gradients.resize(elements);
    state.get_own(gradients.front(), tensor.gradients);
    gradients = gradients.subspan(1);
    if (gradient_scale == 1) continue;
    for (float& gradient : tensor.gradients) gradient /= gradient_scale;
  }
  return record;
}

}  // namespace trireme::train
