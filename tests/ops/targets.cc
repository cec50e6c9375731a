#include "tests/ops/targets.h"

#include <cstdlib>

#include "ops/cpu/dnnl.h"

namespace trireme::ops {
namespace {

std::vector<Layout> dnnl_blocks(const TensorSpec& spec) {
  using Tag = dnnl::memory::format_tag;
  std::vector<Layout> layouts;
  for (Tag tag : {Tag::nChw16c, Tag::nChw8c}) {
    layouts.emplace_back(std::make_shared<cpu::DnnlLayout>(
        dnnl::memory::desc(cpu::to_dims(spec.shape), cpu::to_dnnl(spec.dtype), tag)));
  }
  return layouts;
}

Target on_cpu(std::string name, DType dtype, double tolerance, const CpuOptions& options = {}) {
  return {.name = "cpu_" + std::move(name),
          .device = create_cpu_device,
          .backend = [options](Device& device) { return create_cpu_backend(device, options); },
          .dtype = dtype,
          .tolerance = tolerance,
          .blocked = dnnl_blocks,
          .keeps_row_major_images = true};
}

// Uses the first algorithms that can be built or, if TRIREME_TUNING_CACHE names a folder, the
// fastest, which are measured once for all programs that share the folder.
CudaOptions cuda_options(bool tf32) {
  const char* const folder = std::getenv("TRIREME_TUNING_CACHE");
  return {.tf32 = tf32, .tuning_cache = folder ? folder : "", .measure = folder != nullptr};
}

Target on_cuda(std::string name, DType dtype, bool tf32, double tolerance) {
  return {
      .name = "cuda_" + std::move(name),
      .device = [](int) { return create_cuda_device(0); },
      .backend = [tf32](Device& device) { return create_cuda_backend(device, cuda_options(tf32)); },
      .dtype = dtype,
      .tolerance = tolerance,
      .blocked = [](const TensorSpec&) { return std::vector<Layout>(); },
      .keeps_row_major_images = false};
}

}  // namespace

std::vector<Target> targets() {
  std::vector<Target> all{on_cpu("f32", DType::kF32, 1e-5)};
  if (cpu_computes_in(DType::kBF16)) {
    all.push_back(on_cpu("bf16", DType::kBF16, 8e-3, {.bf16_in_f32 = false}));
    all.push_back(on_cpu("bf16_in_f32", DType::kBF16, 8e-3, {.bf16_in_f32 = true}));
  }
  if (query_cuda().devices > 0) {
    all.push_back(on_cuda("f32", DType::kF32, false, 1e-5));
    all.push_back(on_cuda("bf16", DType::kBF16, false, 1.5e-2));
    all.push_back(on_cuda("f16", DType::kF16, false, 2e-3));
  }
  return all;
}

std::vector<Target> multiplying_targets() {
  std::vector<Target> all = targets();
  if (query_cuda().devices > 0) all.push_back(on_cuda("tf32", DType::kF32, true, 2e-3));
  return all;
}

}  // namespace trireme::ops
