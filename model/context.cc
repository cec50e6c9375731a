#include "model/context.h"

#include <fmt/format.h>

#include <cstring>

#include "core/error.h"
#include "model/compile.h"

namespace trireme::model {
namespace {

using Home = Value::Home;

// Returns "nan", "inf" or "-inf" for the first number that is not finite, judged by its bits, or ""
// if all are finite.
template <class Bits>
std::string bad_number(const std::vector<std::byte>& memory, Bits sign, Bits exponent) {
  for (size_t at = 0; at < memory.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, memory.data() + at, sizeof bits);
    if ((bits & exponent) != exponent) continue;
    if ((bits & ~(sign | exponent)) != 0) return "nan";
    return (bits & sign) != 0 ? "-inf" : "inf";
  }
  return {};
}

std::string bad_number(const std::vector<std::byte>& memory, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return bad_number<uint64_t>(memory, uint64_t{1} << 63, uint64_t{0x7FF} << 52);
    case DType::kF32:
      return bad_number<uint32_t>(memory, 0x8000'0000, 0x7F80'0000);
    case DType::kBF16:
      return bad_number<uint16_t>(memory, 0x8000, 0x7F80);
    case DType::kF16:
      return bad_number<uint16_t>(memory, 0x8000, 0x7C00);
    default:
      return {};  // integers
  }
}

}  // namespace

Context::Context(const Program& program, const ModelArrays& arrays, void* activations)
    : network_(program.network_.get()),
      activations_(static_cast<std::byte*>(activations)),
      table_(network_->table_size) {
  for (size_t i = 0; i < network_->operations.size(); ++i) {
    const std::vector<ValueId>& args = network_->instructions[i].args;
    for (size_t a = 0; a < args.size(); ++a) {
      if (args[a] == kNoValue) continue;
      table_[network_->operations[i].first_arg + a] = address(network_->values[args[a]], arrays);
    }
  }
}

void Context::bind(Port port, const void* memory) {
  auto* bytes = static_cast<std::byte*>(const_cast<void*>(memory));
  for (const PortArg& arg : network_->port_args[static_cast<size_t>(port)]) {
    table_[arg.place] = bytes ? bytes + arg.offset : nullptr;
  }
}

void Context::bind_states(const void* before, void* after, int64_t rows, int64_t first) {
  const auto bind_rows = [&](Port port, const void* memory) {
    auto* bytes = static_cast<std::byte*>(const_cast<void*>(memory));
    for (const PortArg& arg : network_->port_args[static_cast<size_t>(port)]) {
      table_[arg.place] = bytes + static_cast<size_t>(rows) * arg.offset +
                          static_cast<size_t>(first) * arg.row_bytes;
    }
  };
  bind_rows(Port::kStatesBefore, before);
  bind_rows(Port::kStatesAfter, after);
}

void Context::bind_batch(const void* inputs, const void* targets, ops::StepState* state) {
  bind(Port::kInput, inputs);
  bind(Port::kTarget, targets);
  bind(Port::kState, state);
}

void Context::forward(Stream& stream, const std::function<void(int64_t)>& reads_from) const {
  for (const std::vector<PortArg>& args : network_->port_args) {
    if (!args.empty() && !table_[args.front().place])
      throw Error("a port of the network is not bound");
  }
  run(stream, 0, network_->forward_instructions, nullptr, reads_from ? &reads_from : nullptr);
}

void Context::backward(Stream& stream, const std::function<void(int64_t)>& final_end) const {
  run(stream, network_->forward_instructions, network_->operations.size(),
      final_end ? &final_end : nullptr);
}

void* Context::address(const Value& value, const ModelArrays& arrays) const {
  const auto at = [](void* base, size_t bytes) { return static_cast<std::byte*>(base) + bytes; };
  const auto element = [&](void* array, const std::vector<int64_t>& begins) {
    return at(array, static_cast<size_t>(begins[value.index]) * size_of(value.spec.dtype));
  };
  switch (value.home) {
    case Home::kActivations:
      return at(activations_, network_->offsets[value.storage]);
    case Home::kParameter:
      return element(
          value.spec.dtype == network_->array_dtype ? arrays.parameters : arrays.low_precision,
          network_->parameter_begins);
    case Home::kGradient:
      if (network_->bucket_bytes > 0) return at(arrays.buckets, value.offset);
      return element(arrays.gradients, network_->parameter_begins);
    case Home::kRunningStat:
      return element(arrays.running_stats, network_->running_stat_begins);
    case Home::kMetrics:
      return arrays.gradients;
    case Home::kPort:
      break;
  }
  return nullptr;  // see bind()
}

void Context::run(Stream& stream, size_t begin, size_t end,
                  const std::function<void(int64_t)>* final_end,
                  const std::function<void(int64_t)>* reads_from) const {
  for (size_t i = begin; i < end; ++i) {
    const Operation& operation = network_->operations[i];
    if (reads_from && operation.reads_from >= 0) (*reads_from)(operation.reads_from);
    if (observer_) observer_->before(i, stream);
    if (operation.plan) {
      operation.plan->encode(stream, ops::Args(table_).subspan(operation.first_arg, operation.args),
                             activations_ + operation.scratch_offset);
    } else {
      operation.collective->all_reduce_sum(table_[operation.first_arg], operation.count,
                                           operation.dtype, stream);
    }
    if (observer_) observer_->after(i, stream);
    if (final_end && operation.final_end >= 0) (*final_end)(operation.final_end);
  }
}

// Returns a description of a value that the instruction reads or writes, for messages.
std::string Context::describe(size_t instruction, const Value& value) const {
  const auto index = static_cast<size_t>(value.index);
  switch (value.home) {
    case Home::kParameter:
      return fmt::format("parameter '{}'", network_->parameter_names[index]);
    case Home::kGradient:
      return fmt::format("gradient of '{}'", network_->parameter_names[index]);
    case Home::kRunningStat:
      return fmt::format("'{}'", network_->running_stat_names[index]);
    case Home::kMetrics:
      return "the loss";
    case Home::kPort:
      if (value.index == static_cast<int>(Port::kInput)) return "a sample";
      if (value.index == static_cast<int>(Port::kTarget)) return "a target";
      if (value.index == static_cast<int>(Port::kOutput)) return "the output";
      if (value.index == static_cast<int>(Port::kCache)) return "the key-value cache";
      if (value.index == static_cast<int>(Port::kStatesBefore)) return "a carried state";
      if (value.index == static_cast<int>(Port::kStatesAfter)) return "a state to carry on";
      break;  // between stages, like activations
    case Home::kActivations:
      break;
  }
  const int node = network_->instructions[instruction].node;
  if (node < 0) return "the normalized input";
  const bool forward = instruction < network_->forward_instructions;
  return fmt::format("{} layer '{}'", forward ? "output of" : "gradient in",
                     network_->nodes[node].name);
}

// Describes the first value that is not finite among those that the instruction writes (`written`)
// or reads; activations that it reads are skipped, since they were checked when they were written.
// Returns "" if there is none.
std::string Context::not_finite(size_t instruction, bool written, Device& device,
                                Stream& stream) const {
  const std::vector<ValueId>& args = network_->instructions[instruction].args;
  for (size_t a = 0; a < args.size(); ++a) {
    if (args[a] == kNoValue || network_->instructions[instruction].writes(a) != written) continue;
    const Value& value = network_->values[args[a]];
    if (!written && value.home == Home::kActivations) continue;
    std::vector<std::byte> host(value.spec.bytes());
    device.copy(host.data(), table_[network_->operations[instruction].first_arg + a], host.size(),
                stream);
    stream.synchronize();
    const std::string bad = bad_number(host, value.spec.dtype);
    if (!bad.empty())
      return fmt::format("{} is not finite ({})", describe(instruction, value), bad);
  }
  return {};
}

std::optional<Context::NotFinite> Context::check(
    size_t begin, size_t end, Device& device, Stream& stream,
    const std::function<void(int64_t)>* final_end) const {
  std::optional<NotFinite> found;
  for (size_t i = begin; i < end; ++i) {
    const auto look = [&](bool written) {
      if (found) return;
      std::string what = not_finite(i, written, device, stream);
      if (!what.empty()) found = {static_cast<int>(i), std::move(what)};
    };
    look(/*written=*/false);
    run(stream, i, i + 1, final_end);
    look(/*written=*/true);
  }
  return found;
}

std::optional<Context::NotFinite> Context::check_forward(Device& device, Stream& stream) const {
  return check(0, network_->forward_instructions, device, stream, nullptr);
}

std::optional<Context::NotFinite> Context::check_backward(
    Device& device, Stream& stream, const std::function<void(int64_t)>& final_end) const {
  return check(network_->forward_instructions, network_->operations.size(), device, stream,
               final_end ? &final_end : nullptr);
}

}  // namespace trireme::model
