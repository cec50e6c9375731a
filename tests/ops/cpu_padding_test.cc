// The padding channels of blocked layouts must be zero after every op, even if the memory contained
// other tensors before: oneDNN clears them only when a plan sees an address for the first time.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/backend.h"
#include "ops/cpu/dnnl.h"
#include "ops/step_state.h"

namespace trireme::ops {
namespace {

constexpr int64_t kChannels = 6;
const Shape kImages{2, kChannels, 8, 8};
const Shape kPooled{2, kChannels, 4, 4};

TensorSpec blocked(const Shape& shape) {
  return {
      DType::kF32, shape,
      Layout(std::make_shared<cpu::DnnlLayout>(dnnl::memory::desc(
          cpu::to_dims(shape), dnnl::memory::data_type::f32, dnnl::memory::format_tag::nChw16c)))};
}
TensorSpec plain(const Shape& shape) { return {DType::kF32, shape, Layout::row_major()}; }
TensorSpec any(const Shape& shape) { return {DType::kF32, shape, Layout::any()}; }
const TensorSpec kState{DType::kU8, {int64_t{sizeof(StepState)}}, Layout::row_major()};

struct PaddingCase {
  std::string name;
  Op op;
  std::vector<TensorSpec> specs;
};

std::vector<PaddingCase> cases() {
  const TensorSpec x = blocked(kImages), y = blocked(kPooled), c = plain({kChannels});
  const TensorSpec weight = any({kChannels, kChannels, 3, 3});
  const Conv2dGeometry same{.padding = {1, 1}};
  std::vector<PaddingCase> all = {
      {"first convolution",
       Conv2dForward{same, Activation::kSigmoid},
       {plain({2, 1, 8, 8}), any({kChannels, 1, 3, 3}), c, x}},
      {"its weights",
       Conv2dBackwardWeights{same},
       {plain({2, 1, 8, 8}), x, any({kChannels, 1, 3, 3}), c}},
      {"backward data", Conv2dBackwardData{same}, {x, weight, x}},
      {"backward weights", Conv2dBackwardWeights{same}, {x, x, weight, absent()}},
      {"average pool", AveragePoolForward{}, {x, y}},
      {"average pool, backward", AveragePoolBackward{}, {y, x}},
      {"max pool", MaxPoolForward{}, {x, y, absent()}},
      {"batch norm",
       BatchNormForward{},
       {x, x, c, c, absent(), kState, c, c, x, plain({2 * kChannels})}},
      {"batch norm, backward",
       BatchNormBackward{.relu = true},
       {x, x, x, c, plain({2 * kChannels}), absent(), kState, x, x, c, c}},
      {"dropout", DropoutForward{}, {x, kState, x}},
      {"add", Add{}, {x, x, x}},
      {"reorder", Reorder{}, {plain(kImages), x}},
      {"reorder from channels-last", Reorder{}, {plain(kImages).with(Layout::channels_last()), x}},
  };
  for (Activation a : {Activation::kRelu, Activation::kSigmoid, Activation::kGelu}) {
    all.push_back({std::string(name_of(a)), ActivationForward{a}, {x, x}});
    all.push_back({std::string(name_of(a)) + ", backward", ActivationBackward{a}, {x, x, x}});
  }
  return all;
}

// Padding consists of the elements that a conversion to row-major and back does not preserve.
void clear_padding(Backend& backend, Stream& stream, const TensorSpec& spec, void* data) {
  if (!spec.layout.opaque()) return;
  const TensorSpec row = spec.with(Layout::row_major());
  std::vector<float> canonical(static_cast<size_t>(spec.shape.elements()));
  const auto out = backend.plan(Reorder{}, std::vector{spec, row});
  const auto in = backend.plan(Reorder{}, std::vector{row, spec});
  std::vector<std::byte> scratch(std::max(out->scratch_bytes(), in->scratch_bytes()) + 64);
  void* const out_args[] = {data, canonical.data()};
  void* const in_args[] = {canonical.data(), data};
  out->encode(stream, out_args, scratch.data());
  std::memset(data, 0, spec.bytes());
  in->encode(stream, in_args, scratch.data());
}

TEST(CpuPadding, IsZeroWhenMemoryIsReused) {
  const auto device = create_cpu_device(1);
  const auto backend = create_cpu_backend(*device);
  const auto stream = device->create_stream(StreamKind::kCompute);
  for (const PaddingCase& c : cases()) {
    SCOPED_TRACE(c.name);
    const auto plan = backend->plan(c.op, c.specs);
    std::vector<Buffer> buffers;
    std::vector<void*> args;
    for (size_t i = 0; i < plan->specs().size(); ++i) {
      const TensorSpec& spec = plan->specs()[i];
      Buffer& buffer = buffers.emplace_back(device->allocate(spec.bytes()));
      args.push_back(is_absent(spec) ? nullptr : buffer.data());
      std::memset(buffer.data(), 0, buffer.bytes());
      if (spec == kState) {
        buffer.as<StepState>()->valid_rows = 2;
      } else if (spec.dtype == DType::kF32) {
        for (size_t k = 0; k < spec.bytes() / 4; ++k) {
          buffer.as<float>()[k] = 0.1f + static_cast<float>(k % 7);
        }
        clear_padding(*backend, *stream, spec, buffer.data());
      }
    }
    const Buffer scratch = device->allocate(plan->scratch_bytes());
    plan->encode(*stream, args, scratch.data());
    for (size_t i = 0; i < buffers.size(); ++i) {  // as if another tensor had used the memory
      const TensorSpec& spec = plan->specs()[i];
      if (!spec.layout.opaque() || !is_output(c.op, static_cast<int>(i))) continue;
      for (size_t k = 0; k < spec.bytes() / 4; ++k) {
        buffers[i].as<float>()[k] = std::numeric_limits<float>::quiet_NaN();
      }
    }
    plan->encode(*stream, args, scratch.data());
    for (size_t i = 0; i < buffers.size(); ++i) {
      const TensorSpec& spec = plan->specs()[i];
      if (spec.dtype != DType::kF32 || !spec.layout.opaque()) continue;
      std::vector<float> before(spec.bytes() / 4);
      std::memcpy(before.data(), buffers[i].data(), spec.bytes());
      clear_padding(*backend, *stream, spec, buffers[i].data());
      EXPECT_EQ(std::memcmp(before.data(), buffers[i].data(), spec.bytes()), 0)
          << "argument " << i << ": " << spec.to_string();
    }
  }
}

}  // namespace
}  // namespace trireme::ops
