#include "trainer/step/gradient_sync.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/fault_point.h"
#include "trainer/step/arrays.h"

namespace trireme::train {
namespace {

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
                           Stream& compute, int slots, bool scatter)
    : device_(backend.device()),
      parameters_(parameters),
      gradients_(communicator.allocate(parameters.trained_bytes())) {
  bucketer_ = std::make_unique<comm::Bucketer>(
      communicator, device_, compute, gradients_.data(), DType::kF32, buckets_of(parameters),
      wire_format(config, backend), slots, config.sum_on_one_rank(),
      scatter ? std::optional<int64_t>(ops::kMetricCount) : std::nullopt);
  communicator.ledger().set_bucket_names(bucket_names(parameters, buckets()));
  advance_ = [this](int64_t end) {
    note_final(end);
    bucketer_->advance(end);
  };
  advance_without_sums_ = [this](int64_t end) { note_final(end); };
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
  fault_point("gradients", final_, host_elements(device_, gradients_, final_, end));
  final_ = end;
}

}  // namespace trireme::train
