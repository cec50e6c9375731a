#include <fmt/format.h>

#include "ops/cuda/context.h"
#include "ops/cuda/libraries.h"
#include "ops/cuda/plans.h"

namespace trireme::ops {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(Device& device, const CudaOptions& options)
      : context_(std::make_shared<cuda::Context>(
            cuda::Context{device, options, cuda::open_libraries(device, options)})) {}

  Device& device() override { return context_->device; }
  std::unique_ptr<OpPlan> plan(const Op& op, Specs specs) override {
    check_shapes(op, specs);
    try {
      return std::visit([&](const auto& chosen) { return cuda::plan(chosen, context_, specs); },
                        op);
    } catch (const Error& error) {
      std::string tensors;
      for (const TensorSpec& spec : specs) tensors += "; " + spec.to_string();
      throw DeviceError("planning " + std::string(name_of(op)),
                        fmt::format("{}{}", error.what(), tensors));
    }
  }

 private:
  std::shared_ptr<cuda::Context> context_;
};

}  // namespace

std::unique_ptr<Backend> create_cuda_backend(Device& device, const CudaOptions& options) {
  return std::make_unique<CudaBackend>(device, options);
}

}  // namespace trireme::ops
