#include "model/activations.h"

#include <algorithm>

#include "core/alignment.h"

namespace trireme::model {
namespace {

using Home = Value::Home;

size_t scratch_bytes(const Instruction& instruction) {
  return instruction.plan ? instruction.plan->scratch_bytes() : 0;
}

}  // namespace

std::vector<MemoryRequest> lifetimes(std::span<const Instruction> instructions,
                                     std::span<const Value> values) {
  std::vector<MemoryRequest> requests(values.size(), {.bytes = 0, .first = -1, .last = -1});
  for (size_t i = 0; i < instructions.size(); ++i) {
    for (ValueId arg : instructions[i].args) {
      if (arg == kNoValue) continue;
      const Value& value = values[arg];
      if (value.home != Home::kActivations) continue;
      MemoryRequest& request = requests[value.storage];
      request.bytes = std::max(request.bytes, value.spec.bytes());
      if (request.first < 0) request.first = static_cast<int>(i);
      request.last = static_cast<int>(i);
    }
  }
  return requests;
}

void share_in_place(std::span<const Instruction> instructions, std::span<Value> values) {
  std::vector<MemoryRequest> requests = lifetimes(instructions, values);
  std::vector<int> shared_with(values.size(), -1);  // by storage that was replaced
  const auto storage_of = [&](const Value& value) {
    int storage = value.storage;
    while (shared_with[storage] >= 0) {
      storage = shared_with[storage];
    }
    return storage;
  };
  for (size_t i = 0; i < instructions.size(); ++i) {
    const Instruction& instruction = instructions[i];
    if (instruction.collective) continue;
    std::vector<int> taken;
    for (auto [out, in] : ops::aliases(instruction.op)) {
      const ValueId out_id = instruction.args[out];
      const ValueId in_id = instruction.args[in];
      if (out_id == kNoValue || in_id == kNoValue) continue;
      const Value& to = values[out_id];
      const Value& from = values[in_id];
      if (to.home != Home::kActivations || from.home != Home::kActivations) continue;
      const int replaced = storage_of(to);
      const int shared = storage_of(from);
      MemoryRequest& output = requests[replaced];
      MemoryRequest& input = requests[shared];
      const bool fits = replaced != shared && output.first == static_cast<int>(i) &&
                        input.last == static_cast<int>(i) && output.bytes == input.bytes &&
                        std::find(taken.begin(), taken.end(), shared) == taken.end();
      if (!fits) continue;
      taken.push_back(shared);
      input.last = output.last;
      shared_with[replaced] = shared;
    }
  }
  for (Value& value : values) value.storage = storage_of(value);
}

std::vector<size_t> bytes_in_use(std::span<const Instruction> instructions,
                                 std::span<const Value> values) {
  std::vector<size_t> allocated(instructions.size() + 1);  // before each instruction
  std::vector<size_t> released(instructions.size() + 1);
  for (const MemoryRequest& request : lifetimes(instructions, values)) {
    if (request.first < 0) continue;
    allocated[request.first] += device_aligned(request.bytes);
    released[request.last + 1] += device_aligned(request.bytes);
  }
  std::vector<size_t> in_use(instructions.size());
  size_t bytes = 0;
  for (size_t i = 0; i < instructions.size(); ++i) {
    bytes += allocated[i] - released[i];
    in_use[i] = bytes + device_aligned(scratch_bytes(instructions[i]));
  }
  return in_use;
}

size_t bytes_between(std::span<const Instruction> instructions, std::span<const Value> values,
                     size_t position) {
  size_t bytes = 0;
  const auto after = static_cast<int>(position);
  for (const MemoryRequest& request : lifetimes(instructions, values)) {
    if (request.first >= 0 && request.first < after && request.last >= after) {
      bytes += device_aligned(request.bytes);
    }
  }
  return bytes;
}

ActivationPlan plan_activations(std::span<const Instruction> instructions,
                                std::span<const Value> values) {
  std::vector<MemoryRequest> requests = lifetimes(instructions, values);
  const size_t storages = requests.size();
  for (MemoryRequest& request : requests) {
    if (request.first < 0) request = {};  // unused
  }
  for (size_t i = 0; i < instructions.size(); ++i) {
    requests.push_back({scratch_bytes(instructions[i]), static_cast<int>(i), static_cast<int>(i)});
  }
  const MemoryPlan plan = plan_memory(requests);
  const auto scratch = plan.offsets.begin() + static_cast<ptrdiff_t>(storages);
  return {.offsets = {plan.offsets.begin(), scratch},
          .scratch_offsets = {scratch, plan.offsets.end()},
          .bytes = plan.bytes};
}

}  // namespace trireme::model
