#include "ops/elementwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/parallel.h"
#include "ops/choose_layouts.h"
#include "ops/cpu/channel_view.h"
#include "ops/cpu/dnnl.h"
#include "ops/cpu/plans.h"
#include "ops/function_op.h"

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

// A part of a concatenated tensor: each row of the whole contains `bytes` bytes of it.
struct Part {
  size_t bytes;
  size_t offset;  // within a row of the whole
};

// Concatenation along axis 1 in bytes: rows of the whole, each with a piece of every part.
struct JoinGeometry {
  int64_t rows = 0;
  size_t row_bytes = 0;
  std::vector<Part> parts;
};

// Returns the number of rows: values of the dimensions before axis 1, or positions in channels-last
// order.
int64_t joined_rows(const TensorSpec& whole) {
  const Shape& shape = whole.shape;
  if (whole.layout == Layout::channels_last()) return shape.elements() / shape[1];
  return shape[0];
}

// Returns a layout in which parts can be concatenated without splitting vectors: the first one that
// is known, if possible.
Layout join_layout(Specs whole_and_parts) {
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

// Returns `layout`, with channel blocks of size `block` if it is blocked, for the shape of `spec`.
Layout for_shape(const Layout& layout, const TensorSpec& spec, int64_t block) {
  if (layout.kind() != Layout::Kind::kBlocked) return layout;
  const auto tag = block == 16 ? memory::format_tag::nChw16c : memory::format_tag::nChw8c;
  return Layout(
      std::make_shared<DnnlLayout>(memory::desc(to_dims(spec.shape), to_dnnl(spec.dtype), tag)));
}

struct JoinPlan {
  std::vector<TensorSpec> specs;
  JoinGeometry join;
};

// `given`: the whole, then the parts.
JoinPlan plan_join(Specs given) {
  const Layout layout = join_layout(given);
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
  plan.join.rows = joined_rows(plan.specs[0]);
  plan.join.row_bytes = plan.specs[0].bytes() / static_cast<size_t>(plan.join.rows);
  size_t offset = 0;
  for (size_t i = 1; i < plan.specs.size(); ++i) {
    const size_t bytes = plan.specs[i].bytes() / static_cast<size_t>(plan.join.rows);
    plan.join.parts.push_back({bytes, offset});
    offset += bytes;
  }
  return plan;
}

template <bool kJoin>
void move_parts(const JoinGeometry& join, Args args) {
  parallel_for(join.rows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::byte* whole = pointer<std::byte>(args, 0) + static_cast<size_t>(row) * join.row_bytes;
      for (size_t i = 0; i < join.parts.size(); ++i) {
        const Part& part = join.parts[i];
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

// Returns the dimensions for both sides of a reorder: weights of grouped convolutions have one more
// in oneDNN.
memory::dims reorder_dims(const TensorSpec& from, const TensorSpec& to) {
  for (const TensorSpec* spec : {&from, &to}) {
    if (const auto* layout = dynamic_cast<const DnnlLayout*>(spec->layout.opaque())) {
      return layout->desc().dims();
    }
  }
  return from.shape.rank() == 0 ? memory::dims{1} : to_dims(from.shape);
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
  JoinPlan plan = plan_join(given);
  return host_op(std::move(plan.specs),
                 [join = std::move(plan.join)](Args args, void*) { move_parts<true>(join, args); });
}

Plan plan(const Split&, const EnginePtr&, Specs given) {
  JoinPlan plan = plan_join(given);
  return host_op(std::move(plan.specs), [join = std::move(plan.join)](Args args, void*) {
    move_parts<false>(join, args);
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
