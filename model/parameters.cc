#include "model/parameters.h"

#include <vector>

#include "core/random.h"

namespace trireme {
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
         static_cast<size_t>(tensor.begin) * size_of(tensor.spec.dtype);
}

void reorder(Backend& backend, const TensorSpec& from_spec, const void* from,
             const TensorSpec& to_spec, void* to) {
  const TensorSpec specs[] = {from_spec, to_spec};
  const auto plan = backend.plan(Reorder{}, specs);
  const auto stream = backend.device().create_stream(StreamKind::kCompute);
  const Buffer scratch = backend.device().allocate(plan->scratch_bytes());
  void* const args[] = {const_cast<void*>(from), to};
  plan->encode(*stream, args, scratch.data());
  stream->synchronize();
}

}  // namespace

int64_t Parameters::count() const {
  int64_t total = 0;
  for (const Parameter& parameter : trained) total += parameter.spec.shape.elements();
  return total;
}

void initialise(const Parameters& parameters, Backend& backend, uint64_t seed, void* values,
                void* running) {
  const auto stream = backend.device().create_stream(StreamKind::kCompute);
  backend.device().fill_zero(
      values, static_cast<size_t>(parameters.elements) * size_of(parameters.dtype), *stream);
  stream->synchronize();
  for (const Parameter& parameter : parameters.trained) {
    std::vector<float> canonical_values(static_cast<size_t>(parameter.spec.shape.elements()));
    fill(parameter.init, Random(seed, RandomPurpose::kInitialise, name_hash(parameter.name)),
         canonical_values);
    from_canonical(parameter, backend, canonical_values.data(), values);
  }
  for (const RunningValue& value : parameters.running) {
    const std::vector<float> initial(static_cast<size_t>(value.spec.shape.elements()),
                                     value.initial);
    from_canonical(value, backend, initial.data(), running);
  }
}

void to_canonical(const Parameter& parameter, Backend& backend, const void* array, float* out) {
  reorder(backend, parameter.spec, place(parameter, array), canonical(parameter), out);
}

void from_canonical(const Parameter& parameter, Backend& backend, const float* in, void* array) {
  reorder(backend, canonical(parameter), in, parameter.spec, place(parameter, array));
}

void to_canonical(const RunningValue& value, Backend& backend, const void* array, float* out) {
  reorder(backend, value.spec, place(value, array), canonical(value), out);
}

void from_canonical(const RunningValue& value, Backend& backend, const float* in, void* array) {
  reorder(backend, canonical(value), in, value.spec, place(value, array));
}

}  // namespace trireme
