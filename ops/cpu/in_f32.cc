#include "ops/cpu/in_f32.h"

#include <algorithm>
#include <array>
#include <dnnl.hpp>
#include <memory>
#include <span>
#include <utility>

#include "core/alignment.h"
#include "ops/elementwise.h"
#include "ops/function_op.h"

namespace trireme::ops::cpu {
namespace {

// A tensor that has a copy in f32. `before` and `after` are null if the op does not read or write
// it.
struct Copy {
  size_t arg = 0, offset = 0;  // in scratch memory
  Plan before, after;
};

}  // namespace

bool is_emulated(Specs specs) {
  static const bool has_bf16 = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_bf16;
  return !has_bf16 && std::ranges::any_of(specs, [](const TensorSpec& spec) {
    return !is_absent(spec) && spec.dtype == DType::kBF16;
  });
}

std::vector<TensorSpec> with_f32(Specs specs) {
  std::vector<TensorSpec> converted(specs.begin(), specs.end());
  for (TensorSpec& spec : converted) {
    if (spec.dtype == DType::kBF16) spec.dtype = DType::kF32;
  }
  return converted;
}

Plan convert_around(const OpInfo& info, Plan inner, const EnginePtr& engine, Specs given) {
  std::vector<TensorSpec> specs(inner->specs().begin(), inner->specs().end());
  std::vector<Copy> copies;
  size_t scratch_bytes = device_aligned(inner->scratch_bytes());
  for (size_t i = 0; i < specs.size(); ++i) {
    if (is_absent(given[i]) || given[i].dtype != DType::kBF16) continue;
    const TensorSpec wide = specs[i];
    specs[i].dtype = DType::kBF16;
    Copy copy{.arg = i, .offset = scratch_bytes, .before = nullptr, .after = nullptr};
    const Use use = info.arg(i).use;
    if (use != Use::kOut) copy.before = plan(Reorder{}, engine, std::array{specs[i], wide});
    if (use != Use::kIn) copy.after = plan(Reorder{}, engine, std::array{wide, specs[i]});
    scratch_bytes += device_aligned(wide.bytes());
    copies.push_back(std::move(copy));
  }
  auto work = [inner = std::move(inner), copies = std::move(copies), count = specs.size(),
               wide = std::make_unique<void*[]>(specs.size())](Stream& stream, Args args,
                                                               void* scratch) {
    std::ranges::copy(args, wide.get());
    for (const Copy& copy : copies) {
      wide[copy.arg] = static_cast<std::byte*>(scratch) + copy.offset;
      if (!copy.before) continue;
      copy.before->encode(stream, std::array{args[copy.arg], wide[copy.arg]}, nullptr);
    }
    inner->encode(stream, std::span(wide.get(), count), scratch);
    for (const Copy& copy : copies) {
      if (!copy.after) continue;
      copy.after->encode(stream, std::array{wide[copy.arg], args[copy.arg]}, nullptr);
    }
  };
  return function_op(std::move(specs), std::move(work), scratch_bytes);
}

}  // namespace trireme::ops::cpu
