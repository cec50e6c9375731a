#include "trainer/checkpoint/snapshot.h"

#include <cstring>
#include <utility>

#include "core/file.h"
#include "trainer/checkpoint/safetensors.h"

namespace trireme::train {
namespace {

std::vector<SafetensorsEntry> model_entries(const model::Parameters& parameters) {
  std::vector<SafetensorsEntry> entries;
  for (const model::Parameter& p : parameters.all) entries.push_back({p.name, p.spec.shape});
  for (const model::RunningValue& v : parameters.running) entries.push_back({v.name, v.spec.shape});
  return entries;
}

std::vector<SafetensorsEntry> optimizer_entries(const TrainedArrays& arrays) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& array : arrays.optimizer) {
    for (const model::Parameter& p : arrays.parameters.all) {
      if (!p.frozen) entries.push_back({array.name + "." + p.name, p.spec.shape});
    }
  }
  return entries;
}

size_t value_bytes(std::span<const SafetensorsEntry> entries) {
  int64_t elements = 0;
  for (const SafetensorsEntry& entry : entries) elements += entry.shape.elements();
  return static_cast<size_t>(elements) * sizeof(float);
}

// Fills memory tensor by tensor.
class Filler {
 public:
  Filler(ops::Backend& backend, std::byte* to) : backend_(backend), to_(to) {}

  void header(const std::string& text) {
    std::memcpy(to_, text.data(), text.size());
    to_ += text.size();
  }
  void skip(size_t bytes) { to_ += bytes; }
  template <class Tensor>
  void tensor(const Tensor& tensor, const void* array) {
    model::to_canonical(tensor, backend_, array, reinterpret_cast<float*>(to_));
    to_ += static_cast<size_t>(tensor.spec.shape.elements()) * sizeof(float);
  }

 private:
  ops::Backend& backend_;
  std::byte* to_;
};

}  // namespace

Snapshot::Snapshot(TrainedArrays arrays) : arrays_(std::move(arrays)) {
  const auto model = model_entries(arrays_.parameters);
  const auto optimizer = optimizer_entries(arrays_);
  model_header_ = safetensors_header(model);
  optimizer_header_ = safetensors_header(optimizer);
  model_bytes_ = model_header_.size() + value_bytes(model);
  optimizer_begin_ = (model_bytes_ + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
  memory_ = arrays_.backend.device().allocate_host(optimizer_begin_ + optimizer_header_.size() +
                                                   value_bytes(optimizer));
}

void Snapshot::take() {
  Filler filler(arrays_.backend, memory_.data());
  filler.header(model_header_);
  for (const model::Parameter& parameter : arrays_.parameters.all) {
    filler.tensor(parameter, arrays_.values);
  }
  for (const model::RunningValue& value : arrays_.parameters.running) {
    filler.tensor(value, arrays_.running);
  }
  filler.skip(optimizer_begin_ - model_bytes_);
  filler.header(optimizer_header_);
  for (const auto& array : arrays_.optimizer) {
    for (const model::Parameter& parameter : arrays_.parameters.all) {
      if (!parameter.frozen) filler.tensor(parameter, array.values);
    }
  }
}

std::span<const std::byte> Snapshot::model() const { return {memory_.data(), model_bytes_}; }

std::span<const std::byte> Snapshot::optimizer() const {
  return {memory_.data() + optimizer_begin_, memory_.bytes() - optimizer_begin_};
}

}  // namespace trireme::train
