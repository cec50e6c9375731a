#include "trainer/optimizer/state_arrays.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <set>

#include "comm/control.h"
#include "trainer/optimizer/shard.h"

namespace trireme::train {
namespace {

StateArrays::Array trained(const model::Parameters& parameters, const std::string& prefix,
                           void* data) {
  StateArrays::Array array{
      .data = data, .elements = parameters.trained_elements, .tensors = {}, .prefix = prefix};
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

int64_t stored_elements(const StateArrays::Tensor& tensor) {
  return static_cast<int64_t>(tensor.spec.bytes() / sizeof(float));
}

// Returns what all stages have, in the order of the whole network.
template <class Named>
std::vector<Named> joined(const std::vector<Named>& own, const std::vector<Named>& others) {
  std::vector<Named> all = own;
  all.insert(all.end(), others.begin(), others.end());
  std::ranges::sort(all, {}, &Named::index);
  return all;
}

// `all` are the parameters or statistics of the network that have a tensor in the array.
template <class Named>
void add_tensors_of_other_stages(StateArrays::Array& array, const std::vector<Named>& all) {
  std::map<std::string, StateArrays::Tensor> own;
  for (StateArrays::Tensor& tensor : array.tensors) own[tensor.name] = std::move(tensor);
  array.tensors.clear();
  for (const Named& named : all) {
    const std::string name = array.prefix + named.name;
    const auto found = own.find(name);
    array.tensors.push_back(found == own.end()
                                ? StateArrays::Tensor{.name = name, .spec = named.spec}
                                : std::move(found->second));
  }
}

// Returns what this rank has, before the parts of all ranks are known.
StateArrays::Part own_part(const StateArrays::Tensor& tensor) {
  if (!tensor.parts.empty()) return tensor.parts.front();
  return {0, tensor.data ? stored_elements(tensor) : 0};
}

void exchange_parts(StateArrays::Array& array, comm::Communicator& world) {
  if (array.tensors.empty()) return;
  const auto ranks = static_cast<size_t>(world.size());
  const size_t row = 2 * array.tensors.size();
  std::vector<double> table(ranks * row);
  const auto cell = [&](size_t rank, size_t tensor) {
    return table.data() + rank * row + 2 * tensor;
  };
  for (size_t t = 0; t < array.tensors.size(); ++t) {
    const StateArrays::Part own = own_part(array.tensors[t]);
    double* const numbers = cell(static_cast<size_t>(world.rank()), t);
    numbers[0] = static_cast<double>(own.begin);
    numbers[1] = static_cast<double>(own.end);
  }
  comm::sum(world, table);  // of one number and zeros, so exact
  for (size_t t = 0; t < array.tensors.size(); ++t) {
    array.tensors[t].parts.clear();
    for (size_t rank = 0; rank < ranks; ++rank) {
      const double* const numbers = cell(rank, t);
      array.tensors[t].parts.push_back(
          {static_cast<int64_t>(numbers[0]), static_cast<int64_t>(numbers[1])});
    }
  }
}

}  // namespace

StateArrays::StateArrays(const model::Parameters& parameters, ops::Backend& backend,
                         const model::ModelArrays& model)
    : backend_(&backend),
      model_{{{.data = model.parameters, .elements = parameters.elements},
              {.data = model.running_stats, .elements = parameters.running_stat_elements}}} {
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

void StateArrays::add_shard(const model::Parameters& parameters, const std::string& name,
                            void* data, Shard shard) {
  Array array{.data = data,
              .elements = slot_elements(parameters, shard),
              .tensors = {},
              .prefix = name + ".",
              .sharded = true};
  for (const model::Parameter& p : parameters.all) {
    if (p.frozen) continue;
    const ArrayPart part = part_of(p, parameters, shard);
    array.tensors.push_back({.name = array.prefix + p.name,
                             .spec = p.spec,
                             .data = static_cast<float*>(data) + part.begin + part.slot_shift,
                             .parts = {{part.begin - p.begin, part.end - p.begin}}});
  }
  optimizer_.push_back(std::move(array));
}

void StateArrays::add_carried(std::vector<Tensor> tensors, void* data, int64_t elements) {
  Array array{.data = data,
              .elements = elements,
              .tensors = std::move(tensors),
              .prefix = kCarriedPrefix + std::string("."),
              .sharded = true};
  for (Tensor& tensor : array.tensors) tensor.name = array.prefix + tensor.name;
  optimizer_.push_back(std::move(array));
}

std::vector<StateArrays::Array*> StateArrays::all_arrays() {
  std::vector<Array*> arrays{&model_[0], &model_[1]};
  for (Array& array : optimizer_) arrays.push_back(&array);
  return arrays;
}

void StateArrays::distribute(const model::Parameters& parameters, comm::Communicator& world,
                             comm::Communicator& communicator, bool has_stages, Stream& stream,
                             std::span<std::byte> work) {
  communicator_ = &communicator;
  stream_ = &stream;
  work_ = work;
  if (has_stages) {
    add_tensors_of_other_stages(
        model_[1], joined(parameters.running_stats, parameters.running_stats_of_other_stages));
    auto all = joined(parameters.all, parameters.of_other_stages);
    add_tensors_of_other_stages(model_[0], all);
    std::erase_if(all, [](const model::Parameter& parameter) { return parameter.frozen; });
    for (Array& array : optimizer_) add_tensors_of_other_stages(array, all);
  }
  for (Array* array : all_arrays()) {
    if (has_stages || array->sharded) exchange_parts(*array, world);
  }
}

bool StateArrays::is_distributed() const { return communicator_ != nullptr; }

void StateArrays::send_parts() const {
  for (const auto arrays : {model(), optimizer()}) {
    for (const Array& array : arrays) {
      if (!array.is_distributed()) continue;
      for (const Tensor& tensor : array.tensors) get(tensor, {});
    }
  }
}

std::vector<std::string> StateArrays::distributed_names(std::span<const Array> arrays) {
  std::vector<std::string> names;
  for (const Array& array : arrays) {
    if (!array.is_distributed()) continue;
    for (const Tensor& tensor : array.tensors) names.push_back(tensor.name);
  }
  return names;
}

void StateArrays::put_parts(std::span<const std::string> names, const Read& read) const {
  const std::set<std::string_view> wanted(names.begin(), names.end());
  for (const auto arrays : {model(), optimizer()}) {
    for (const Array& array : arrays) {
      if (!array.is_distributed()) continue;
      for (const Tensor& tensor : array.tensors) {
        if (!wanted.contains(tensor.name)) continue;
        put(tensor, communicator_->rank() == 0 ? read(tensor) : std::vector<float>());
      }
    }
  }
}

std::vector<StateArrays::Part> StateArrays::without_repetitions(std::vector<Part> parts) {
  int64_t end = 0;
  for (Part& part : parts) {
    if (!not_empty(part)) continue;
    if (part.begin == end) {
      end = part.end;
    } else {
      part = {};
    }
  }
  return parts;
}

float* StateArrays::whole(const Tensor& tensor, Buffer& own) const {
  if (tensor.spec.bytes() <= work_.size()) return reinterpret_cast<float*>(work_.data());
  own = backend_->device().allocate(tensor.spec.bytes());
  return own.as<float>();
}

// Copies the parts of all ranks to rank 0.
void StateArrays::collect(const Tensor& tensor, std::span<float> values) const {
  const int rank = communicator_->rank();
  const std::vector<Part> sent = without_repetitions(tensor.parts);
  const auto count = [](const Part& part) { return part.end - part.begin; };
  if (rank > 0) {
    const Part& own = sent[static_cast<size_t>(rank)];
    if (not_empty(own)) communicator_->send(tensor.data, count(own), DType::kF32, 0, *stream_);
    return stream_->synchronize();
  }
  Device& device = backend_->device();
  Buffer own;
  float* const all = whole(tensor, own);
  for (size_t from = 0; from < sent.size(); ++from) {
    const Part& part = sent[from];
    if (!not_empty(part)) continue;
    float* const to = all + part.begin;
    if (from == 0) {
      device.copy(to, tensor.data, static_cast<size_t>(count(part)) * sizeof(float), *stream_);
    } else {
      communicator_->recv(to, count(part), DType::kF32, static_cast<int>(from), *stream_);
    }
  }
  stream_->synchronize();
  model::to_canonical(*backend_, tensor.spec, all, values.data());
}

// Copies parts of rank 0's values to all ranks.
void StateArrays::scatter(const Tensor& tensor, std::span<const float> values) const {
  const int rank = communicator_->rank();
  const auto count = [](const Part& part) { return part.end - part.begin; };
  if (rank > 0) {
    const Part& own = tensor.parts[static_cast<size_t>(rank)];
    if (not_empty(own)) communicator_->recv(tensor.data, count(own), DType::kF32, 0, *stream_);
    return stream_->synchronize();
  }
  Device& device = backend_->device();
  Buffer own;
  float* const all = whole(tensor, own);
  model::from_canonical(*backend_, values.data(), tensor.spec, all);
  for (size_t to = 0; to < tensor.parts.size(); ++to) {
    const Part& part = tensor.parts[to];
    if (!not_empty(part)) continue;
    const float* const from = all + part.begin;
    if (to == 0) {
      device.copy(tensor.data, from, static_cast<size_t>(count(part)) * sizeof(float), *stream_);
    } else {
      communicator_->send(from, count(part), DType::kF32, static_cast<int>(to), *stream_);
    }
  }
  stream_->synchronize();
}

bool StateArrays::has(const Tensor& tensor) const {
  if (tensor.parts.empty()) return true;
  const Part& own = tensor.parts[static_cast<size_t>(communicator_->rank())];
  return own.begin == 0 && own.end == stored_elements(tensor);
}

void StateArrays::get_own(const Tensor& tensor, std::span<float> values) const {
  assert(has(tensor) && std::ssize(values) == tensor.spec.shape.elements());
  model::to_canonical(*backend_, tensor.spec, tensor.data, values.data());
}

void StateArrays::get(const Tensor& tensor, std::span<float> values) const {
  if (!tensor.parts.empty()) return collect(tensor, values);
  get_own(tensor, values);
}

void StateArrays::put(const Tensor& tensor, std::span<const float> values) const {
  if (!tensor.parts.empty()) return scatter(tensor, values);
  assert(std::ssize(values) == tensor.spec.shape.elements());
  model::from_canonical(*backend_, values.data(), tensor.spec, tensor.data);
}

}  // namespace trireme::train
