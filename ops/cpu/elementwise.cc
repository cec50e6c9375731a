#include "ops/elementwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/parallel.h"
#include "ops/cpu/channel_view.h"
#include "ops/cpu/dnnl.h"
#include "ops/cpu/plans.h"
#include "ops/function_op.h"
#include "ops/settle.h"

namespace trireme::ops::cpu {
namespace {

using dnnl::memory;

template <class T>
TRIREME_VECTORIZED void add(const T* a, const T* b, T* y, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store(y + i, load(a + i, AllLanes()) + load(b + i, AllLanes()), AllLanes());
  }
  for (; i < count; ++i) y[i] = from_float<T>(to_float(a[i]) + to_float(b[i]));
}

// A part of a joined tensor: `pieces` pieces of `bytes` each, every one at its place in a row of
// the whole.
struct Part {
  size_t bytes;
  size_t offset;  // in the row of the whole
};

// How tensors of these layouts are joined along axis 1: rows of the whole, each with a piece of
// every part.
struct Joint {
  int64_t rows = 0;
  size_t row_bytes = 0;
  std::vector<Part> parts;
};

// Elements of a tensor that lie together for one value of the extents before axis 1, or in
// channels-last order for one position.
int64_t joined_rows(const TensorSpec& whole) {
  const Shape& shape = whole.shape;
  if (whole.layout == Layout::channels_last()) return shape.elements() / shape[1];
  return shape[0];
}

// A layout in which parts can be joined without taking vectors apart: that of the first tensor that
// has one, if possible.
Layout joinable(Specs whole_and_parts) {
  const Specs parts = whole_and_parts.subspan(1);
  const auto known = std::find_if(whole_and_parts.begin(), whole_and_parts.end(),
                                  [](const TensorSpec& spec) { return !spec.layout.is_any(); });
  if (known == whole_and_parts.end()) return Layout::row_major();
  if (known->layout.kind() != Layout::Kind::kBlocked) return known->layout;
  const auto view = ChannelView::of(*known);
  const bool whole_blocks = view && std::all_of(parts.begin(), parts.end(), [&](const auto& part) {
                              return part.shape[1] % view->per_group == 0;
                            });
  return whole_blocks ? known->layout : Layout::channels_last();
}

// `layout`, known from a tensor `like`, for another number of channels.
Layout for_shape(const Layout& layout, const TensorSpec& spec, int64_t block) {
  if (layout.kind() != Layout::Kind::kBlocked) return layout;
  const auto tag = block == 16 ? memory::format_tag::nChw16c : memory::format_tag::nChw8c;
  return Layout(
      std::make_shared<DnnlLayout>(memory::desc(to_dims(spec.shape), to_dnnl(spec.dtype), tag)));
}

struct JoinPlan {
  std::vector<TensorSpec> specs;
  Joint joint;
};

// specs: the whole, then the parts.
JoinPlan plan_joint(Specs given) {
  const Layout layout = joinable(given);
  int64_t block = 1;
  for (const TensorSpec& spec : given) {
    if (layout.kind() == Layout::Kind::kBlocked && spec.layout == layout) {
      block = ChannelView::of(spec)->per_group;
    }
  }
  JoinPlan plan;
  for (const TensorSpec& spec : given) {
    plan.specs.push_back(spec.with(for_shape(layout, spec, block)));
  }
  plan.joint.rows = joined_rows(plan.specs[0]);
  plan.joint.row_bytes = plan.specs[0].bytes() / static_cast<size_t>(plan.joint.rows);
  size_t offset = 0;
  for (size_t i = 1; i < plan.specs.size(); ++i) {
    const size_t bytes = plan.specs[i].bytes() / static_cast<size_t>(plan.joint.rows);
    plan.joint.parts.push_back({bytes, offset});
    offset += bytes;
  }
  return plan;
}

template <bool kJoin>
void move_parts(const Joint& joint, Args args) {
  parallel_for(joint.rows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::byte* whole = pointer<std::byte>(args, 0) + static_cast<size_t>(row) * joint.row_bytes;
      for (size_t i = 0; i < joint.parts.size(); ++i) {
        const Part& part = joint.parts[i];
        std::byte* piece =
            static_cast<std::byte*>(args[i + 1]) + static_cast<size_t>(row) * part.bytes;
        if constexpr (kJoin) {
          std::memcpy(whole + part.offset, piece, part.bytes);
        } else {
          std::memcpy(piece, whole + part.offset, part.bytes);
        }
      }
    }
  });
}

// The dims both sides of a reorder are seen with: convolution weights with groups have one more in
// oneDNN.
memory::dims reorder_dims(const TensorSpec& from, const TensorSpec& to) {
  for (const TensorSpec* spec : {&from, &to}) {
    if (const auto* layout = dynamic_cast<const DnnlLayout*>(spec->layout.opaque())) {
      return layout->desc().dims();
    }
  }
  memory::dims dims = to_dims(from.shape);
  if (dims.empty()) dims.push_back(1);
  return dims;
}

Plan plan_copy(std::vector<TensorSpec> specs) {
  const size_t bytes = specs[0].bytes();
  return host_op(std::move(specs), [bytes](Args args, void*) {
    constexpr size_t kChunk = 1 << 16;
    parallel_for(static_cast<int64_t>((bytes + kChunk - 1) / kChunk),
                 [&](int64_t begin, int64_t end) {
                   const size_t first = static_cast<size_t>(begin) * kChunk;
                   const size_t last = std::min(bytes, static_cast<size_t>(end) * kChunk);
                   std::memcpy(pointer<std::byte>(args, 1) + first,
                               pointer<const std::byte>(args, 0) + first, last - first);
                 });
  });
}

}  // namespace

Plan plan(const Add&, const EnginePtr&, Specs given) {
  using Op = Add;
  std::vector<TensorSpec> specs = in_one_layout(given);
  const auto count = static_cast<int64_t>(specs[Op::kY].bytes() / size_of(specs[Op::kY].dtype));
  return with_element(specs[Op::kY].dtype, [&]<class T>(T) -> Plan {
    return host_op(std::move(specs), [count](Args args, void*) {
      parallel_for(count, [&](int64_t begin, int64_t end) {
        add(pointer<const T>(args, Op::kA) + begin, pointer<const T>(args, Op::kB) + begin,
            pointer<T>(args, Op::kY) + begin, end - begin);
      });
    });
  });
}

Plan plan(const Concat&, const EnginePtr&, Specs given) {
  JoinPlan plan = plan_joint(given);
  return host_op(std::move(plan.specs), [joint = std::move(plan.joint)](Args args, void*) {
    move_parts<true>(joint, args);
  });
}

Plan plan(const Split&, const EnginePtr&, Specs given) {
  JoinPlan plan = plan_joint(given);
  return host_op(std::move(plan.specs), [joint = std::move(plan.joint)](Args args, void*) {
    move_parts<false>(joint, args);
  });
}

Plan plan(const Reorder&, const EnginePtr& engine, Specs given) {
  using Op = Reorder;
  std::vector<TensorSpec> specs(given.begin(), given.end());
  if (specs[Op::kFrom].layout.is_any()) specs[Op::kFrom].layout = Layout::row_major();
  if (specs[Op::kTo].layout.is_any()) specs[Op::kTo].layout = specs[Op::kFrom].layout;
  if (specs[Op::kFrom] == specs[Op::kTo]) return plan_copy(std::move(specs));
  const memory::dims dims = reorder_dims(specs[Op::kFrom], specs[Op::kTo]);
  const dnnl::reorder::primitive_desc desc(engine->engine, to_desc(specs[Op::kFrom], dims),
                                           engine->engine, to_desc(specs[Op::kTo], dims),
                                           scratch_by_caller());
  return std::make_unique<PrimitivePlan>(
      engine, std::move(specs), dnnl::reorder(desc),
      std::vector<PrimitivePlan::Binding>{{DNNL_ARG_FROM, Op::kFrom, desc.src_desc()},
                                          {DNNL_ARG_TO, Op::kTo, desc.dst_desc()}},
      desc.scratchpad_desc());
}

}  // namespace trireme::ops::cpu
