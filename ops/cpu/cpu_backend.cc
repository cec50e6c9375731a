#include <fmt/format.h>

#include "ops/backend.h"
#include "ops/cpu/dnnl.h"
#include "ops/cpu/plans.h"

namespace trireme::ops {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(Device& device, const CpuOptions& options)
      : device_(device),
        engine_(std::make_shared<cpu::Engine>(options.bf16_in_f32.value_or(
            !cpu::has_instructions(dnnl::cpu_isa::avx512_core_bf16)))) {}

  Device& device() override { return device_; }
  std::unique_ptr<OpPlan> plan(const Op& op, Specs specs) override {
    check_shapes(op, specs);
    try {
      return std::visit([&](const auto& chosen) { return cpu::plan(chosen, engine_, specs); }, op);
    } catch (const dnnl::error& error) {
      std::string tensors;
      for (const TensorSpec& spec : specs) tensors += "; " + spec.to_string();
      throw DeviceError("oneDNN", fmt::format("{} for {}{}", error.what(), name_of(op), tensors));
    }
  }

 private:
  Device& device_;
  std::shared_ptr<cpu::Engine> engine_;
};

}  // namespace

bool cpu_computes_in(DType dtype) {
  if (dtype != DType::kBF16) return dtype == DType::kF32;
  return cpu::has_instructions(dnnl::cpu_isa::avx512_core);
}

std::unique_ptr<Backend> create_cpu_backend(Device& device, const CpuOptions& options) {
  return std::make_unique<CpuBackend>(device, options);
}

}  // namespace trireme::ops
