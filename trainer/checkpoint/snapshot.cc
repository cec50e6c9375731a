#include "trainer/checkpoint/snapshot.h"

#include <cstring>
#include <utility>
#include <vector>

#include "core/alignment.h"
#include "core/file.h"
#include "trainer/checkpoint/safetensors.h"

namespace trireme::train {
namespace {

using Arrays = std::span<const StateArrays::Array>;

std::vector<SafetensorsEntry> entries_of(Arrays arrays) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& array : arrays) {
    for (const auto& tensor : array.tensors) entries.push_back({tensor.name, tensor.spec.shape});
  }
  return entries;
}

size_t value_bytes(std::span<const SafetensorsEntry> entries) {
  int64_t elements = 0;
  for (const SafetensorsEntry& entry : entries) elements += entry.shape.elements();
  return static_cast<size_t>(elements) * sizeof(float);
}

void write_file(const StateArrays& state, const std::string& header, Arrays arrays, std::byte* to) {
  std::memcpy(to, header.data(), header.size());
  auto* values = reinterpret_cast<float*>(to + header.size());
  for (const auto& array : arrays) {
    for (const auto& tensor : array.tensors) {
      const auto elements = static_cast<size_t>(tensor.spec.shape.elements());
      state.get(tensor, {values, elements});
      values += elements;
    }
  }
}

}  // namespace

Snapshot::Snapshot(StateArrays arrays) : arrays_(std::move(arrays)) {
  const auto model = entries_of(arrays_.model());
  const auto optimizer = entries_of(arrays_.optimizer());
  model_header_ = safetensors_header(model);
  optimizer_header_ = safetensors_header(optimizer);
  model_bytes_ = model_header_.size() + value_bytes(model);
  optimizer_begin_ = round_up(model_bytes_, kDirectAlignment);
  memory_ = arrays_.backend().device().allocate_host(optimizer_begin_ + optimizer_header_.size() +
                                                     value_bytes(optimizer));
}

void Snapshot::take() {
  write_file(arrays_, model_header_, arrays_.model(), memory_.data());
  write_file(arrays_, optimizer_header_, arrays_.optimizer(), memory_.data() + optimizer_begin_);
}

std::span<const std::byte> Snapshot::model() const { return {memory_.data(), model_bytes_}; }

std::span<const std::byte> Snapshot::optimizer() const {
  return {memory_.data() + optimizer_begin_, memory_.bytes() - optimizer_begin_};
}

}  // namespace trireme::train
