// Products of matrices that lie anywhere in memory, with oneDNN.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "ops/cpu/dnnl.h"
#include "ops/cpu/plans.h"

namespace trireme::ops::cpu {

// oneDNN's type of the elements T: float or BFloat16.
template <class T>
constexpr dnnl::memory::data_type type_of() {
  return std::is_same_v<T, float> ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

// A matrix in memory: its type and how far apart rows and columns lie, in elements.
struct Matrix {
  dnnl::memory::data_type type;
  int64_t row_stride, column_stride;

  Matrix transposed() const { return {type, column_stride, row_stride}; }
  dnnl::memory::desc desc(int64_t rows, int64_t columns) const {
    return {{rows, columns}, type, dnnl::memory::dims{row_stride, column_stride}};
  }
};

inline dnnl::primitive_attr product_attr(bool accumulate) {
  dnnl::primitive_attr attr = scratch_by_caller();
  if (!accumulate) return attr;
  dnnl::post_ops ops;
  ops.append_sum(1);
  attr.set_post_ops(ops);
  return attr;
}

// c [m, n] = a [m, k] b [k, n], or added to c. Runs in different slots, each with scratch memory of
// its own, may go on at once.
class Product {
 public:
  Product(const EnginePtr& engine, int64_t m, int64_t n, int64_t k, const Matrix& a,
          const Matrix& b, const Matrix& c, bool accumulate, int64_t slots = 1)
      : Product(engine, a.desc(m, k), b.desc(k, n), c.desc(m, n), accumulate, slots) {}
  // oneDNN chooses the layout of b if its descriptor leaves that open.
  Product(const EnginePtr& engine, const dnnl::memory::desc& a, const dnnl::memory::desc& b,
          const dnnl::memory::desc& c, bool accumulate, int64_t slots) {
    const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(a, b, c), product_attr(accumulate),
                                            engine->engine);
    const std::array<BoundPrimitive::Argument, 4> arguments{
        {{DNNL_ARG_SRC, a},
         {DNNL_ARG_WEIGHTS, desc.weights_desc()},
         {DNNL_ARG_DST, c},
         {DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc()}}};
    const dnnl::matmul primitive(desc);
    for (int64_t i = 0; i < slots; ++i) slots_.emplace_back(engine, primitive, arguments);
    b_ = desc.weights_desc();
    scratch_bytes_ = desc.scratchpad_desc().get_size();
  }

  const dnnl::memory::desc& b() const { return b_; }
  size_t scratch_bytes() const { return scratch_bytes_; }
  void run(const void* a, const void* b, void* c, void* scratch, int64_t slot = 0) const {
    const std::array<void*, 4> data{const_cast<void*>(a), const_cast<void*>(b), c, scratch};
    slots_[static_cast<size_t>(slot)].run(data);
  }

 private:
  dnnl::memory::desc b_;
  size_t scratch_bytes_ = 0;
  std::vector<BoundPrimitive> slots_;
};

// Like Product, for many products with the same b, which is first copied to the layout that oneDNN
// multiplies fastest.
class PackedProduct {
 public:
  PackedProduct(const EnginePtr& engine, int64_t m, int64_t n, int64_t k, const Matrix& a,
                const Matrix& b, const Matrix& c, bool accumulate, int64_t slots)
      : product_(engine, a.desc(m, k),
                 dnnl::memory::desc({k, n}, b.type, dnnl::memory::format_tag::any), c.desc(m, n),
                 accumulate, slots),
        pack_(bind_pack(engine, b.desc(k, n), product_.b())) {}

  size_t packed_bytes() const { return product_.b().get_size(); }
  size_t scratch_bytes() const { return product_.scratch_bytes(); }
  // Copies b. Uses all threads.
  void pack(const void* b, void* packed) const {
    pack_.run(std::array<void*, 2>{const_cast<void*>(b), packed});
  }
  void run(const void* a, const void* packed, void* c, void* scratch, int64_t slot) const {
    product_.run(a, packed, c, scratch, slot);
  }

 private:
  static BoundPrimitive bind_pack(const EnginePtr& engine, const dnnl::memory::desc& from,
                                  const dnnl::memory::desc& to) {
    const dnnl::reorder pack({engine->engine, from, engine->engine, to});
    const std::array<BoundPrimitive::Argument, 2> arguments{
        {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
    return {engine, pack, arguments};
  }

  Product product_;
  BoundPrimitive pack_;
};

}  // namespace trireme::ops::cpu
