#include "model/parameters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/random.h"

namespace trireme::model {
namespace {

// Positions of Vaswani et al., arXiv:1706.03762, section 3.5: the pair (2i, 2i + 1) of row t is sin
// and cos of t / 10000^(2i / C).
float sinusoidal(size_t row, size_t column, size_t columns) {
  const double exponent = static_cast<double>(column / 2 * 2) / static_cast<double>(columns);
  const double angle = static_cast<double>(row) / std::pow(10000.0, exponent);
  return static_cast<float>(column % 2 == 0 ? std::sin(angle) : std::cos(angle));
}

// Fills in initial values in canonical order.
void fill(const Initializer& init, const Shape& shape, const Random& random,
          std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    switch (init.kind) {
      case Initializer::Kind::kConstant:
        values[i] = init.mean;
        break;
      case Initializer::Kind::kUniform:
        values[i] = init.mean + init.width * (2 * random.uniform_at(i) - 1);
        break;
      case Initializer::Kind::kNormal:
        values[i] = init.mean + init.width * random.normal_at(i);
        break;
      case Initializer::Kind::kSinusoidal: {
        const auto columns = static_cast<size_t>(shape[shape.rank() - 1]);
        values[i] = sinusoidal(i / columns, i % columns, columns);
        break;
      }
    }
  }
}

TensorSpec canonical(const TensorSpec& spec) {
  return {DType::kF32, spec.shape, Layout::row_major()};
}

// Reorders a tensor from host to device memory (`from_host`) or back, computing on the device.
void reorder(ops::Backend& backend, const TensorSpec& from_spec, const void* from,
             const TensorSpec& to_spec, void* to, bool from_host) {
  Device& device = backend.device();
  const TensorSpec specs[] = {from_spec, to_spec};
  const auto plan = backend.plan(ops::Reorder{}, specs);
  const auto stream = device.create_stream(StreamKind::kCompute);
  const Buffer scratch = device.allocate(plan->scratch_bytes());
  if (device.kind() == DeviceKind::kCpu) {  // device memory is host memory
    plan->encode(*stream, std::array<void*, ops::Reorder::kArgs>{const_cast<void*>(from), to},
                 scratch.data());
    stream->synchronize();
    return;
  }
  const size_t bytes = (from_host ? from_spec : to_spec).bytes();
  const Buffer canonical_copy = device.allocate(bytes);
  if (from_host) device.copy(canonical_copy.data(), from, bytes, *stream);
  void* const args[] = {from_host ? canonical_copy.data() : const_cast<void*>(from),
                        from_host ? to : canonical_copy.data()};
  plan->encode(*stream, args, scratch.data());
  if (!from_host) device.copy(to, canonical_copy.data(), bytes, *stream);
  stream->synchronize();
}

}  // namespace

int64_t Parameters::count() const {
  int64_t total = 0;
  for (const auto* part : {&all, &of_other_stages}) {
    for (const Parameter& parameter : *part) total += parameter.spec.shape.elements();
  }
  return total;
}

int64_t Parameters::trained_count() const {
  int64_t total = 0;
  for (const auto* part : {&all, &of_other_stages}) {
    for (const Parameter& parameter : *part) {
      if (!parameter.frozen) total += parameter.spec.shape.elements();
    }
  }
  return total;
}

size_t bucket_of(const Parameters& parameters, const Parameter& parameter) {
  const auto next = std::ranges::upper_bound(parameters.bucket_ends, parameter.begin);
  return static_cast<size_t>(next - parameters.bucket_ends.begin());
}

LowPrecisionCopy::LowPrecisionCopy(const Parameters& parameters, ops::Backend& backend,
                                   const std::function<Buffer(size_t bytes)>& allocate) {
  if (!parameters.low_precision()) return;
  const TensorSpec array{parameters.array_dtype(), {parameters.elements}, Layout::row_major()};
  const TensorSpec copy{parameters.dtype, array.shape, array.layout};
  plan_ = backend.plan(ops::Reorder{}, std::array{array, copy});
  copy_ = allocate ? allocate(copy.bytes()) : backend.device().allocate(copy.bytes());
  scratch_ = backend.device().allocate(plan_->scratch_bytes());
}

void LowPrecisionCopy::refresh(const void* values, Stream& stream) const {
  if (!plan_) return;
  const std::array<void*, ops::Reorder::kArgs> args{const_cast<void*>(values), copy_.data()};
  plan_->encode(stream, args, scratch_.data());
}

void initialize(const Parameters& parameters, ops::Backend& backend, uint64_t seed, void* values,
                void* running_stats) {
  const auto stream = backend.device().create_stream(StreamKind::kCompute);
  backend.device().fill_zero(values, parameters.array_bytes(), *stream);
  stream->synchronize();
  for (const Parameter& parameter : parameters.all) {
    std::vector<float> initial(parameter.spec.shape.elements());
    fill(parameter.init, parameter.spec.shape,
         Random(seed, RandomPurpose::kInitialize, name_hash(parameter.name)), initial);
    from_canonical(backend, initial.data(), parameter.spec, parameter.at(values));
  }
  for (const RunningStatistic& value : parameters.running_stats) {
    const std::vector<float> initial(value.spec.shape.elements(), value.initial);
    from_canonical(backend, initial.data(), value.spec, value.at(running_stats));
  }
}

void to_canonical(ops::Backend& backend, const TensorSpec& spec, const void* tensor, float* out) {
  reorder(backend, spec, tensor, canonical(spec), out, /*from_host=*/false);
}

void from_canonical(ops::Backend& backend, const float* in, const TensorSpec& spec, void* tensor) {
  reorder(backend, canonical(spec), in, spec, tensor, /*from_host=*/true);
}

}  // namespace trireme::model
