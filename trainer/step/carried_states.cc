#include "trainer/step/carried_states.h"

#include <algorithm>
#include <utility>

namespace trireme::train {

CarriedStates::CarriedStates(const model::Program& program, Device& device, int64_t rows)
    : device_(device),
      states_(program.carried_states()),
      rows_(rows),
      current_(device.allocate(bytes_of(program, rows))) {}

size_t CarriedStates::bytes_of(const model::Program& program, int64_t rows) {
  size_t bytes = 0;
  for (const model::CarriedState& state : program.carried_states()) bytes += state.row_bytes;
  return static_cast<size_t>(rows) * bytes;
}

void CarriedStates::reset(Stream& stream) const {
  if (current_.bytes() > 0) device_.fill_zero(current_.data(), current_.bytes(), stream);
}

void CarriedStates::begin(const data::Batch& batch, Stream& stream) const {
  if (states_.empty()) return;
  const auto continues = [&](int64_t row) { return batch.continues && batch.continues[row]; };
  int64_t continued = 0;
  for (int64_t row = 0; row < batch.rows; ++row) continued += continues(row) ? 1 : 0;
  if (continued == batch.rows && batch.position > 0) return;
  if (continued == 0) return reset(stream);
  std::byte* state = current_.data();
  for (const model::CarriedState& of_layer : states_) {
    for (int64_t row = 0; row < batch.rows; ++row) {
      if (continues(row)) continue;
      device_.fill_zero(state + static_cast<size_t>(row) * of_layer.row_bytes, of_layer.row_bytes,
                        stream);
    }
    state += static_cast<size_t>(rows_) * of_layer.row_bytes;
  }
}

void CarriedStates::bind(model::Context& context, const Buffer& before, int64_t first) const {
  context.bind_states(before.data(), current_.data(), rows_, first);
}

void CarriedStates::add_to(StateArrays& arrays, int64_t global_batch, data::Share share,
                           bool distributed) const {
  if (states_.empty()) return;
  std::vector<StateArrays::Tensor> tensors;
  std::byte* state = current_.data();
  for (const model::CarriedState& of_layer : states_) {
    std::vector<int64_t> extents{global_batch};
    extents.insert(extents.end(), of_layer.row.begin(), of_layer.row.end());
    StateArrays::Tensor& tensor = tensors.emplace_back();
    tensor.name = of_layer.name;
    tensor.spec = {DType::kF32, Shape(extents), Layout::row_major()};
    tensor.data = state;
    const int64_t elements = of_layer.row.elements();
    if (distributed) {
      tensor.parts = {{share.begin * elements, (share.begin + share.rows) * elements}};
    }
    state += static_cast<size_t>(rows_) * of_layer.row_bytes;
  }
  arrays.add_carried(std::move(tensors), current_.data(),
                     static_cast<int64_t>(current_.bytes() / sizeof(float)));
}

}  // namespace trireme::train
