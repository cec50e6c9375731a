#include "trainer/step/arrays.h"

#include <vector>

namespace trireme::train {

StepArrays::StepArrays(const model::Parameters& parameters, ops::Backend& backend,
                       size_t activation_bytes)
    : parameters_(parameters),
      backend_(backend),
      device_(backend.device()),
      values_(device_.allocate(parameters.array_bytes())),
      low_precision_(parameters, backend),
      running_(device_.allocate(parameters.running_bytes())),
      activations_(device_.allocate(activation_bytes)) {}

void StepArrays::initialise(uint64_t seed, Stream& stream) {
  device_.fill_zero(running_.data(), parameters_.running_bytes(), stream);
  stream.synchronize();
  model::initialise(parameters_, backend_, seed, values_.data(), running_.data());
  values_changed(stream);
}

void StepArrays::values_changed(Stream& stream) {
  low_precision_.refresh(values_.data(), stream);
  stream.synchronize();
}

void StepArrays::average_running(comm::Communicator& communicator, Stream& stream) {
  if (communicator.size() == 1 || parameters_.moving_elements == 0) return;
  communicator.all_reduce_sum(running_.data(), parameters_.moving_elements, DType::kF32, stream);
  std::vector<float> host(static_cast<size_t>(parameters_.moving_elements));
  const size_t bytes = host.size() * sizeof(float);
  device_.copy(host.data(), running_.data(), bytes, stream);
  stream.synchronize();
  for (float& value : host) value /= static_cast<float>(communicator.size());
  device_.copy(running_.data(), host.data(), bytes, stream);
  stream.synchronize();
}

model::ModelArrays StepArrays::model(void* gradients) const {
  return {.parameters = values_.data(),
          .low_precision = low_precision_.data(),
          .gradients = gradients,
          .running = running_.data()};
}

size_t StepArrays::parameter_bytes() const {
  return parameters_.array_bytes() + low_precision_.bytes() + running_.bytes();
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
