#include "trainer/step/arrays.h"

#include <vector>

namespace trireme::train {

StepArrays::StepArrays(const model::Parameters& parameters, ops::Backend& backend,
                       size_t activation_bytes, bool averages, comm::Communicator* communicator)
    : layout_(parameters), backend_(backend), device_(backend.device()) {
  const auto own = [this](size_t bytes) { return device_.allocate(bytes); };
  const auto exchanged = [&](size_t bytes) {
    return communicator ? communicator->allocate(bytes) : own(bytes);
  };
  parameters_ = exchanged(parameters.array_bytes());
  low_precision_ = model::LowPrecisionCopy(parameters, backend, exchanged);
  if (averages) {
    averages_ = exchanged(parameters.array_bytes());
    low_precision_averages_ = model::LowPrecisionCopy(parameters, backend);
  }
  running_stats_ = own(parameters.running_stat_bytes());
  activations_ = own(activation_bytes);
}

void StepArrays::initialize(uint64_t seed, Stream& stream) {
  device_.fill_zero(running_stats_.data(), layout_.running_stat_bytes(), stream);
  stream.synchronize();
  model::initialize(layout_, backend_, seed, parameters_.data(), running_stats_.data());
  parameters_changed(stream);
  restart_averages(stream);
}

void StepArrays::parameters_changed(Stream& stream) {
  low_precision_.refresh(parameters_.data(), stream);
  if (const size_t begin = layout_.trained_bytes();
      averages_.bytes() > begin) {  // frozen parameters come last
    device_.copy(averages_.data() + begin, parameters_.data() + begin, averages_.bytes() - begin,
                 stream);
  }
  stream.synchronize();
}

void StepArrays::restart_averages(Stream& stream) {
  if (averages_.bytes() == 0) return;
  copy_array(device_, averages_, parameters_, stream);
  stream.synchronize();
}

void StepArrays::averages_changed(Stream& stream) {
  if (averages_.bytes() == 0) return;
  low_precision_averages_.refresh(averages_.data(), stream);
  stream.synchronize();
}

void StepArrays::average_running_stats(comm::Communicator& communicator, double weight,
                                       Stream& stream) {
  if (communicator.size() == 1 || layout_.updated_stat_elements == 0) return;
  const auto change_each = [&](const auto& change) {
    std::vector<float> host(static_cast<size_t>(layout_.updated_stat_elements));
    const size_t bytes = host.size() * sizeof(float);
    device_.copy(host.data(), running_stats_.data(), bytes, stream);
    stream.synchronize();
    for (float& value : host) value = change(value);
    device_.copy(running_stats_.data(), host.data(), bytes, stream);
    stream.synchronize();
  };
  const auto ranks = static_cast<float>(communicator.size());
  if (weight != 1) {
    change_each([&](float value) { return static_cast<float>(weight * double{value}); });
  }
  communicator.all_reduce_sum(running_stats_.data(), layout_.updated_stat_elements, DType::kF32,
                              stream);
  change_each([&](float value) { return value / ranks; });
}

model::ModelArrays StepArrays::model(void* gradients) const {
  return {.parameters = parameters_.data(),
          .low_precision = low_precision_.data(),
          .gradients = gradients,
          .running_stats = running_stats_.data()};
}

model::ModelArrays StepArrays::evaluation_model() const {
  model::ModelArrays arrays = model(nullptr);
  if (averages_.bytes() == 0) return arrays;
  arrays.parameters = averages_.data();
  arrays.low_precision = low_precision_averages_.data();
  return arrays;
}

size_t StepArrays::parameter_bytes() const {
  return parameters_.bytes() + low_precision_.bytes() + averages_.bytes() +
         low_precision_averages_.bytes() + running_stats_.bytes();
}

void copy_array(Device& device, const Buffer& to, const Buffer& from, Stream& stream) {
  if (from.bytes() > 0) device.copy(to.data(), from.data(), from.bytes(), stream);
}

std::span<std::byte> host_elements(const Device& device, const Buffer& array, int64_t begin,
                                   int64_t end) {
  if (device.kind() != DeviceKind::kCpu) return {};
  return {array.data() + begin * 4, static_cast<size_t>(end - begin) * 4};
}

}  // namespace trireme::train
