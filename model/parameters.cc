#include "model/parameters.h"

#include <array>
#include <vector>

#include "core/random.h"

namespace trireme::model {
namespace {

// Values in canonical order, from the seed and the parameter's name alone.
void fill(const Initialiser& init, const Random& random, std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    switch (init.kind) {
      case Initialiser::Kind::kConstant:
        values[i] = init.mean;
        break;
      case Initialiser::Kind::kUniform:
        values[i] = init.mean + init.width * (2 * random.uniform_at(i) - 1);
        break;
      case Initialiser::Kind::kNormal:
        values[i] = init.mean + init.width * random.normal_at(i);
        break;
    }
  }
}

template <class Tensor>
TensorSpec canonical(const Tensor& tensor) {
  return {DType::kF32, tensor.spec.shape, Layout::row_major()};
}

template <class Tensor>
std::byte* place(const Tensor& tensor, const void* array) {
  return static_cast<std::byte*>(const_cast<void*>(array)) +
         tensor.begin * size_of(tensor.spec.dtype);
}

// Between a tensor in the array and canonical order in host memory, by way of the device.
void reorder(ops::Backend& backend, const TensorSpec& from_spec, const void* from,
             const TensorSpec& to_spec, void* to, bool from_host) {
  Device& device = backend.device();
  const TensorSpec specs[] = {from_spec, to_spec};
  const auto plan = backend.plan(ops::Reorder{}, specs);
  const auto stream = device.create_stream(StreamKind::kCompute);
  const Buffer scratch = device.allocate(plan->scratch_bytes());
  if (device.kind() == DeviceKind::kCpu) {  // whose memory is the host's
    plan->encode(*stream, std::array<void*, ops::Reorder::kArgs>{const_cast<void*>(from), to},
                 scratch.data());
    stream->synchronize();
    return;
  }
  const size_t bytes = (from_host ? from_spec : to_spec).bytes();
  const Buffer beside = device.allocate(bytes);
  if (from_host) device.copy(beside.data(), from, bytes, *stream);
  void* const args[] = {from_host ? beside.data() : const_cast<void*>(from),
                        from_host ? to : beside.data()};
  plan->encode(*stream, args, scratch.data());
  if (!from_host) device.copy(to, beside.data(), bytes, *stream);
  stream->synchronize();
}

}  // namespace

int64_t Parameters::count() const {
  int64_t total = 0;
  for (const Parameter& parameter : all) total += parameter.spec.shape.elements();
  return total;
}

int64_t Parameters::trained_count() const {
  int64_t total = 0;
  for (const Parameter& parameter : all) {
    if (!parameter.frozen) total += parameter.spec.shape.elements();
  }
  return total;
}

LowPrecisionCopy::LowPrecisionCopy(const Parameters& parameters, ops::Backend& backend) {
  if (!parameters.low_precision()) return;
  const TensorSpec array{parameters.array_dtype(), {parameters.elements}, Layout::row_major()};
  const TensorSpec copy{parameters.dtype, array.shape, array.layout};
  plan_ = backend.plan(ops::Reorder{}, std::array{array, copy});
  copy_ = backend.device().allocate(copy.bytes());
  scratch_ = backend.device().allocate(plan_->scratch_bytes());
}

void LowPrecisionCopy::refresh(const void* values, Stream& stream) const {
  if (!plan_) return;
  const std::array<void*, ops::Reorder::kArgs> args{const_cast<void*>(values), copy_.data()};
  plan_->encode(stream, args, scratch_.data());
}

void initialise(const Parameters& parameters, ops::Backend& backend, uint64_t seed, void* values,
                void* running) {
  const auto stream = backend.device().create_stream(StreamKind::kCompute);
  backend.device().fill_zero(values, parameters.array_bytes(), *stream);
  stream->synchronize();
  for (const Parameter& parameter : parameters.all) {
    std::vector<float> canonical_values(parameter.spec.shape.elements());
    fill(parameter.init, Random(seed, RandomPurpose::kInitialise, name_hash(parameter.name)),
         canonical_values);
    from_canonical(parameter, backend, canonical_values.data(), values);
  }
  for (const RunningValue& value : parameters.running) {
    const std::vector<float> initial(value.spec.shape.elements(), value.initial);
    from_canonical(value, backend, initial.data(), running);
  }
}

void to_canonical(const Parameter& parameter, ops::Backend& backend, const void* array,
                  float* out) {
  reorder(backend, parameter.spec, place(parameter, array), canonical(parameter), out,
          /*from_host=*/false);
}

void from_canonical(const Parameter& parameter, ops::Backend& backend, const float* in,
                    void* array) {
  reorder(backend, canonical(parameter), in, parameter.spec, place(parameter, array),
          /*from_host=*/true);
}

void to_canonical(const RunningValue& value, ops::Backend& backend, const void* array, float* out) {
  reorder(backend, value.spec, place(value, array), canonical(value), out,
          /*from_host=*/false);
}

void from_canonical(const RunningValue& value, ops::Backend& backend, const float* in,
                    void* array) {
  reorder(backend, canonical(value), in, value.spec, place(value, array),
          /*from_host=*/true);
}

}  // namespace trireme::model
