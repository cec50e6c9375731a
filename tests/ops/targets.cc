#include "tests/ops/targets.h"

#include "ops/cpu/dnnl.h"

namespace trireme {
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

Target on_cpu(DType dtype, double tolerance) {
  return {.name = "cpu_" + std::string(name_of(dtype)),
          .device = create_cpu_device,
          .backend = create_cpu_backend,
          .dtype = dtype,
          .tolerance = tolerance,
          .blocked = dnnl_blocks};
}

}  // namespace

std::vector<Target> targets() { return {on_cpu(DType::kF32, 1e-5)}; }

}  // namespace trireme
