// Products of matrices that lie anywhere in memory, with oneDNN.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

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

// c [m, n] = a [m, k] b [k, n], or added to c.
class Product {
 public:
  Product(EnginePtr engine, int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b,
          const Matrix& c, bool accumulate)
      : engine_(std::move(engine)), descs_{a.desc(m, k), b.desc(k, n), c.desc(m, n), {}} {
    const dnnl::primitive_attr attr = product_attr(accumulate);
    const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(descs_[0], descs_[1], descs_[2]),
                                            attr, engine_->engine);
    primitive_ = dnnl::matmul(desc);
    descs_[3] = desc.scratchpad_desc();
  }

  size_t scratch_bytes() const { return descs_[3].get_size(); }
  // By any number of threads at once, each with scratch memory of its own.
  void run(const void* a, const void* b, void* c, void* scratch) const {
    const auto at = [&](size_t i, const void* data) {
      return dnnl::memory(descs_[i], engine_->engine, const_cast<void*>(data));
    };
    primitive_.execute(engine_->stream, {{DNNL_ARG_SRC, at(0, a)},
                                         {DNNL_ARG_WEIGHTS, at(1, b)},
                                         {DNNL_ARG_DST, at(2, c)},
                                         {DNNL_ARG_SCRATCHPAD, at(3, scratch)}});
  }

 private:
  EnginePtr engine_;
  std::array<dnnl::memory::desc, 4> descs_;  // of a, b, c and scratch
  dnnl::matmul primitive_;
};

// Like Product, for many products with the same b, which is first copied to the layout that oneDNN
// multiplies fastest.
class PackedProduct {
 public:
  PackedProduct(EnginePtr engine, int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b,
                const Matrix& c, bool accumulate)
      : engine_(std::move(engine)), descs_{a.desc(m, k), b.desc(k, n), c.desc(m, n), {}} {
    const dnnl::primitive_attr attr = product_attr(accumulate);
    const dnnl::memory::desc any({k, n}, b.type, dnnl::memory::format_tag::any);
    const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(descs_[0], any, descs_[2]), attr,
                                            engine_->engine);
    primitive_ = dnnl::matmul(desc);
    packed_ = desc.weights_desc();
    descs_[3] = desc.scratchpad_desc();
    const dnnl::reorder::primitive_desc pack(engine_->engine, descs_[1], engine_->engine, packed_);
    pack_ = dnnl::reorder(pack);
  }

  size_t packed_bytes() const { return packed_.get_size(); }
  size_t scratch_bytes() const { return descs_[3].get_size(); }
  // Copies b. Uses all threads.
  void pack(const void* b, void* packed) const {
    pack_.execute(engine_->stream, {{DNNL_ARG_FROM, memory_at(descs_[1], b)},
                                    {DNNL_ARG_TO, memory_at(packed_, packed)}});
  }
  // By any number of threads at once, each with scratch memory of its own.
  void run(const void* a, const void* packed, void* c, void* scratch) const {
    primitive_.execute(engine_->stream, {{DNNL_ARG_SRC, memory_at(descs_[0], a)},
                                         {DNNL_ARG_WEIGHTS, memory_at(packed_, packed)},
                                         {DNNL_ARG_DST, memory_at(descs_[2], c)},
                                         {DNNL_ARG_SCRATCHPAD, memory_at(descs_[3], scratch)}});
  }

 private:
  dnnl::memory memory_at(const dnnl::memory::desc& desc, const void* data) const {
    return {desc, engine_->engine, const_cast<void*>(data)};
  }

  EnginePtr engine_;
  std::array<dnnl::memory::desc, 4> descs_;  // of a, b, c and scratch
  dnnl::memory::desc packed_;
  dnnl::matmul primitive_;
  dnnl::reorder pack_;
};

}  // namespace trireme::ops::cpu
