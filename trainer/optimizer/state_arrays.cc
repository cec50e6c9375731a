#include "trainer/optimizer/state_arrays.h"

#include <cassert>

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

void StateArrays::get(const Tensor& tensor, std::span<float> values) const {
  assert(std::ssize(values) == tensor.spec.shape.elements());
  model::to_canonical(*backend_, tensor.spec, tensor.data, values.data());
}

void StateArrays::put(const Tensor& tensor, std::span<const float> values) const {
  assert(std::ssize(values) == tensor.spec.shape.elements());
  model::from_canonical(*backend_, values.data(), tensor.spec, tensor.data);
}

}  // namespace trireme::train
