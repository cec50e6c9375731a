#include "trainer/step/gradient_sync.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/fault_point.h"
#include "trainer/step/arrays.h"

namespace trireme::train {
namespace {

constexpr size_t kMetricBytes = ops::kMetricCount * sizeof(float);

std::vector<comm::Bucket> buckets_of(const model::Parameters& parameters) {
  std::vector<comm::Bucket> buckets;
  int64_t begin = 0;
  for (const int64_t end : parameters.bucket_ends) {
    buckets.push_back({begin, end});
    begin = end;
  }
  return buckets;
}

// Returns the first and last parameter of each bucket: "layer3.0.conv1.weight ...
// layer3.2.bn3.bias".
std::vector<std::string> bucket_names(const model::Parameters& parameters,
                                      std::span<const comm::Bucket> buckets) {
  std::vector<std::string> names;
  for (const comm::Bucket& bucket : buckets) {
    const model::Parameter* first = nullptr;
    const model::Parameter* last = nullptr;
    for (const model::Parameter& parameter : parameters.all) {
      if (parameter.begin < bucket.begin || parameter.begin >= bucket.end) continue;
      if (!first || parameter.begin < first->begin) first = &parameter;
      if (!last || parameter.begin > last->begin) last = &parameter;
    }
    if (!first) {
      names.emplace_back();
    } else {
      names.push_back(first == last ? first->name
                                    : fmt::format("{} ... {}", first->name, last->name));
    }
  }
  return names;
}

}  // namespace

GradientSync::GradientSync(const BucketConfig& config, comm::Communicator& communicator,
                           ops::Backend& backend, const model::Parameters& parameters,
                           Stream& compute, int slots, Shard shard, const model::Program& program)
    : backend_(backend),
      device_(backend.device()),
      parameters_(parameters),
      shard_(shard),
      compute_(compute),
      gradients_(communicator.allocate(static_cast<size_t>(gradient_elements(parameters, shard)) *
                                       sizeof(float))),
      bucket_memory_(communicator.allocate(program.bucket_bytes())) {
  bucketer_ = std::make_unique<comm::Bucketer>(
      communicator, device_, compute, gradients_.data(), DType::kF32, buckets_of(parameters),
      wire_format(config, backend), slots, config.sum_on_one_rank(), scatter(program));
  communicator.ledger().set_bucket_names(bucket_names(parameters, buckets()));
  advance_ = [this](int64_t end) {
    note_final(end);
    bucketer_->advance(end);
  };
  advance_without_sums_ = [this](int64_t end) { note_final(end); };
}

std::optional<comm::Scatter> GradientSync::scatter(const model::Program& program) {
  if (shard_.is_whole()) return std::nullopt;
  comm::Scatter scatter{.shared = ops::kMetricCount};
  if (!shard_.has_gradients) return scatter;
  bucket_offsets_ = program.bucket_offsets();
  plan_additions();
  for (const size_t offset : bucket_offsets_) {
    scatter.memory.push_back(bucket_memory_.data() + offset);
  }
  scatter.deliver = [this](size_t bucket, const std::byte* memory, Stream& stream) {
    deliver(bucket, memory, stream);
  };
  return scatter;
}

void GradientSync::plan_additions() {
  const std::vector<ArrayPart> parts = parts_of(parameters_, shard_);
  int64_t begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const ArrayPart& part = parts[i];
    const TensorSpec spec{DType::kF32, {part.end - part.begin}, Layout::row_major()};
    Addition& addition = additions_.emplace_back();
    addition.plan = backend_.plan(ops::Add{}, std::array{spec, spec, spec});
    addition.scratch = device_.allocate(addition.plan->scratch_bytes());
    float* const sum = gradients_.as<float>() + part.begin + part.gradient_shift;
    std::byte* const summed = bucket_memory_.data() + bucket_offsets_[i] +
                              static_cast<size_t>(part.begin - begin) * sizeof(float);
    addition.args = {sum, summed, sum};
    begin = parameters_.bucket_ends[i];
  }
}

void GradientSync::deliver(size_t bucket, const std::byte* memory, Stream& stream) {
  const Addition& addition = additions_[bucket];
  const auto& [sum, summed, result] = addition.args;
  if (first_pass_) {
    device_.copy(result, summed, addition.plan->specs()[0].bytes(), stream);
  } else {
    addition.plan->encode(stream, addition.args, addition.scratch.data());
  }
  if (bucket == 0 && last_pass_) device_.copy(gradients_.data(), memory, kMetricBytes, stream);
}

void GradientSync::begin_pass(int64_t pass, int64_t passes) {
  first_pass_ = pass == 0;
  last_pass_ = pass + 1 == passes;
  sums_pass_ = last_pass_ || shard_.has_gradients;
  if (!shard_.has_gradients) return;
  if (!first_pass_) bucketer_->finish();
  final_ = ops::kMetricCount;
}

comm::WireFormat GradientSync::wire_format(const BucketConfig& config, ops::Backend& backend) {
  if (config.precision() == FP32) return {};
  const DType dtype = config.precision() == BF16 ? DType::kBF16 : DType::kF16;
  to_wire_ = std::make_unique<Conversion>(backend, DType::kF32, dtype);
  from_wire_ = std::make_unique<Conversion>(backend, dtype, DType::kF32);
  const auto convert_with = [](Conversion& conversion) {
    return [&](const void* from, void* to, int64_t elements, Stream& on) {
      conversion.encode(from, to, elements, on);
    };
  };
  return {dtype, convert_with(*to_wire_), convert_with(*from_wire_)};
}

std::vector<comm::Bucketer::Array> GradientSync::arrays_of(void* values,
                                                           void* low_precision) const {
  std::vector<comm::Bucketer::Array> arrays(buckets().size(), {values, DType::kF32});
  if (low_precision) {
    for (const model::Parameter& parameter : parameters_.all) {
      if (parameter.frozen || parameter.dtype != parameters_.dtype) continue;
      arrays[bucket_of(parameters_, parameter)] = {low_precision, parameters_.dtype};
    }
  }
  return arrays;
}

void GradientSync::begin(int slot) {
  bucketer_->use_events(slot);
  begin_without_sums();
}

// Gradients from the end of the last call to `end` are final.
void GradientSync::note_final(int64_t end) {
  for (size_t i = 0; i < bucket_offsets_.size(); ++i) {  // with ZeRO-2
    const comm::Bucket& bucket = buckets()[i];
    const int64_t first = std::max(final_, bucket.begin);
    const int64_t last = std::min(end, bucket.end);
    if (first >= last) continue;
    const auto shift = static_cast<int64_t>(bucket_offsets_[i] / sizeof(float)) - bucket.begin;
    fault_point("gradients", first,
                host_elements(device_, bucket_memory_, first + shift, last + shift));
  }
  if (!shard_.has_gradients) {
    fault_point("gradients", final_, host_elements(device_, gradients_, final_, end));
  }
  // The metrics are summed with the first bucket.
  const int64_t first_end = buckets().front().end;
  if (shard_.has_gradients && last_pass_ && final_ < first_end && end >= first_end) {
    device_.copy(bucket_memory_.data() + bucket_offsets_.front(), gradients_.data(), kMetricBytes,
                 compute_);
  }
  final_ = end;
}

}  // namespace trireme::train
