#include "trainer/optimizer/state_arrays.h"

#include <algorithm>
#include <cassert>

#include "trainer/optimizer/shard.h"

namespace trireme::train {
namespace {

StateArrays::Array trained(const model::Parameters& parameters, const std::string& prefix,
                           void* data) {
  StateArrays::Array array{data, parameters.trained_elements, {}};
  for (const model::Parameter& p : parameters.all) {
    if (!p.frozen) array.tensors.push_back({prefix + p.name, p.spec, p.at(data)});
  }
  return array;
}

// Returns what a shard has of a parameter, and where it is in the shard's arrays.
ArrayPart part_of(const model::Parameter& parameter, const model::Parameters& parameters,
                  Shard shard) {
  ArrayPart part = parts_of(parameters, shard)[bucket_of(parameters, parameter)];
  part.begin = std::clamp(parameter.begin, part.begin, part.end);
  part.end = std::clamp(parameter.end, part.begin, part.end);
  return part;
}

bool not_empty(const StateArrays::Part& part) { return part.begin < part.end; }

}  // namespace

StateArrays::StateArrays(const model::Parameters& parameters, ops::Backend& backend,
                         const model::ModelArrays& model)
    : backend_(&backend),
      model_{{{model.parameters, parameters.elements, {}},
              {model.running_stats, parameters.running_stat_elements, {}}}} {
  for (const model::Parameter& p : parameters.all) {
    model_[0].tensors.push_back({p.name, p.spec, p.at(model.parameters)});
  }
  for (const model::RunningStatistic& v : parameters.running_stats) {
    model_[1].tensors.push_back({v.name, v.spec, v.at(model.running_stats)});
  }
  if (model.gradients) gradients_ = trained(parameters, "", model.gradients);
}

void StateArrays::add_optimizer_array(const model::Parameters& parameters, const std::string& name,
                                      void* data) {
  optimizer_.push_back(trained(parameters, name + ".", data));
}

void StateArrays::add_sharded_array(const model::Parameters& parameters, const std::string& name,
                                    void* data, comm::Communicator& communicator, Stream& stream) {
  communicator_ = &communicator;
  stream_ = &stream;
  const int count = communicator.size();
  Array array{.data = data,
              .elements = slot_elements(parameters, {communicator.rank(), count}),
              .tensors = {},
              .sharded = true};
  for (const model::Parameter& p : parameters.all) {
    if (p.frozen) continue;
    Tensor tensor{name + "." + p.name, p.spec};
    for (int rank = 0; rank < count; ++rank) {
      const ArrayPart part = part_of(p, parameters, {rank, count});
      tensor.parts.push_back({part.begin - p.begin, part.end - p.begin});
      if (rank == communicator.rank()) {
        tensor.data = static_cast<float*>(data) + part.begin + part.slot_shift;
      }
    }
    array.tensors.push_back(std::move(tensor));
  }
  optimizer_.push_back(std::move(array));
}

bool StateArrays::has_shards() const {
  return std::ranges::any_of(optimizer_, [](const Array& array) { return array.sharded; });
}

void StateArrays::send_shards() const {
  for (const Array& array : optimizer_) {
    for (const Tensor& tensor : array.tensors) {
      if (array.sharded) get(tensor, {});
    }
  }
}

void StateArrays::receive_shards() const {
  for (const Array& array : optimizer_) {
    for (const Tensor& tensor : array.tensors) {
      if (array.sharded) put(tensor, {});
    }
  }
}

// Copies the parts of all ranks to rank 0.
void StateArrays::collect(const Tensor& tensor, std::span<float> values) const {
  const Part& own = tensor.parts[static_cast<size_t>(communicator_->rank())];
  if (communicator_->rank() > 0) {
    if (not_empty(own)) {
      communicator_->send(tensor.data, own.end - own.begin, DType::kF32, 0, *stream_);
    }
    return stream_->synchronize();
  }
  Device& device = backend_->device();
  const Buffer whole = device.allocate(tensor.spec.bytes());
  device.copy(whole.as<float>() + own.begin, tensor.data,
              static_cast<size_t>(own.end - own.begin) * sizeof(float), *stream_);
  for (int rank = 1; rank < communicator_->size(); ++rank) {
    const Part& part = tensor.parts[static_cast<size_t>(rank)];
    if (!not_empty(part)) continue;
    communicator_->recv(whole.as<float>() + part.begin, part.end - part.begin, DType::kF32, rank,
                        *stream_);
  }
  stream_->synchronize();
  model::to_canonical(*backend_, tensor.spec, whole.data(), values.data());
}

// Copies parts of rank 0's values to all ranks.
void StateArrays::distribute(const Tensor& tensor, std::span<const float> values) const {
  const Part& own = tensor.parts[static_cast<size_t>(communicator_->rank())];
  if (communicator_->rank() > 0) {
    if (not_empty(own)) {
      communicator_->recv(tensor.data, own.end - own.begin, DType::kF32, 0, *stream_);
    }
    return stream_->synchronize();
  }
  Device& device = backend_->device();
  const Buffer whole = device.allocate(tensor.spec.bytes());
  model::from_canonical(*backend_, values.data(), tensor.spec, whole.data());
  device.copy(tensor.data, whole.as<float>() + own.begin,
              static_cast<size_t>(own.end - own.begin) * sizeof(float), *stream_);
  for (int rank = 1; rank < communicator_->size(); ++rank) {
    const Part& part = tensor.parts[static_cast<size_t>(rank)];
    if (!not_empty(part)) continue;
    communicator_->send(whole.as<float>() + part.begin, part.end - part.begin, DType::kF32, rank,
                        *stream_);
  }
  stream_->synchronize();
}

void StateArrays::get(const Tensor& tensor, std::span<float> values) const {
  if (!tensor.parts.empty()) return collect(tensor, values);
  assert(std::ssize(values) == tensor.spec.shape.elements());
  model::to_canonical(*backend_, tensor.spec, tensor.data, values.data());
}

void StateArrays::put(const Tensor& tensor, std::span<const float> values) const {
  if (!tensor.parts.empty()) return distribute(tensor, values);
  assert(std::ssize(values) == tensor.spec.shape.elements());
  model::from_canonical(*backend_, values.data(), tensor.spec, tensor.data);
}

}  // namespace trireme::train
