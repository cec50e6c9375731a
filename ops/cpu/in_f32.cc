#include "ops/cpu/in_f32.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "core/alignment.h"
#include "core/error.h"
#include "ops/cpu/dnnl.h"
#include "ops/elementwise.h"
#include "ops/function_op.h"

namespace trireme::ops::cpu {
namespace {

constexpr size_t kMaxArgs = 16;

// A tensor that has a copy in f32. `before` and `after` are null if the op does not read or write
// it.
struct Copy {
  size_t arg = 0, offset = 0;  // in scratch memory
  Plan before, after;
};

}  // namespace

bool runs_in_f32(const Engine& engine, Specs specs) {
  return engine.bf16_in_f32 && std::ranges::any_of(specs, [](const TensorSpec& spec) {
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
  if (specs.size() > kMaxArgs) throw Error("an op with so many tensors is not converted to f32");
  std::vector<Copy> copies;
  size_t scratch_bytes = device_aligned(inner->scratch_bytes());
  for (size_t i = 0; i < specs.size(); ++i) {
    if (is_absent(given[i]) || given[i].dtype != DType::kBF16) continue;
    const TensorSpec f32 = specs[i];
    specs[i].dtype = DType::kBF16;
    Copy copy{.arg = i, .offset = scratch_bytes, .before = nullptr, .after = nullptr};
    const Use use = info.arg(i).use;
    if (use != Use::kOut) copy.before = plan(Reorder{}, engine, std::array{specs[i], f32});
    if (use != Use::kIn) copy.after = plan(Reorder{}, engine, std::array{f32, specs[i]});
    scratch_bytes += device_aligned(f32.bytes());
    copies.push_back(std::move(copy));
  }
  auto work = [inner = std::move(inner), copies = std::move(copies)](Stream& stream, Args args,
                                                                     void* scratch) {
    std::array<void*, kMaxArgs> of_inner{};
    std::ranges::copy(args, of_inner.begin());
    for (const Copy& copy : copies) {
      of_inner[copy.arg] = static_cast<std::byte*>(scratch) + copy.offset;
      if (!copy.before) continue;
      copy.before->encode(stream, std::array{args[copy.arg], of_inner[copy.arg]}, nullptr);
    }
    inner->encode(stream, std::span(of_inner).first(args.size()), scratch);
    for (const Copy& copy : copies) {
      if (!copy.after) continue;
      copy.after->encode(stream, std::array{of_inner[copy.arg], args[copy.arg]}, nullptr);
    }
  };
  return function_op(std::move(specs), std::move(work), scratch_bytes);
}

}  // namespace trireme::ops::cpu
