#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {
namespace {

// One sample and head: where its vectors lie and what its queries may see.
class Head {
 public:
  Head(const AttentionShape& shape, const Shape& qkv, const int32_t* lengths,
       const int32_t* first_keys, int64_t sample, int64_t head)
      : length_(qkv[1]), row_(qkv[2]), causal_(shape.causal), scale_(double{shape.scale}) {
    dim_ = row_ / (shape.heads + 2 * shape.kv_heads);
    const int64_t kv = head * shape.kv_heads / shape.heads;
    first_ = sample * length_ * row_;
    q_ = head * dim_;
    k_ = (shape.heads + kv) * dim_;
    v_ = (shape.heads + shape.kv_heads + kv) * dim_;
    valid_ = lengths ? lengths[sample] : length_;
    first_keys_ = first_keys ? first_keys + sample * length_ : nullptr;
    y_row_ = shape.heads * dim_;
    y_ = sample * length_ * y_row_ + head * dim_;
  }
  int64_t dim() const { return dim_; }
  int64_t length() const { return length_; }
  bool sees(int64_t query, int64_t key) const {
    return query < valid_ && key < valid_ && (!causal_ || key <= query) &&
           (!first_keys_ || key >= first_keys_[query]);
  }
  double scale() const { return scale_; }
  int64_t q(int64_t t) const { return first_ + t * row_ + q_; }
  int64_t k(int64_t t) const { return first_ + t * row_ + k_; }
  int64_t v(int64_t t) const { return first_ + t * row_ + v_; }
  int64_t y(int64_t t) const { return y_ + t * y_row_; }

 private:
  int64_t length_, row_, dim_ = 0, first_ = 0, q_ = 0, k_ = 0, v_ = 0, valid_ = 0, y_row_ = 0,
                         y_ = 0;
  const int32_t* first_keys_ = nullptr;
  bool causal_;
  double scale_;
};

double product(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// Calls f(key, score) for each key that the query sees.
template <class F>
void each_score(const Head& head, const double* qkv, int64_t query, F f) {
  for (int64_t j = 0; j < head.length(); ++j) {
    if (!head.sees(query, j)) continue;
    f(j, head.scale() * product(qkv + head.q(query), qkv + head.k(j), head.dim()));
  }
}

template <class F>
void each_head(const AttentionShape& shape, const Shape& qkv, const int32_t* lengths,
               const int32_t* first_keys, F f) {
  for (int64_t sample = 0; sample < qkv[0]; ++sample) {
    for (int64_t head = 0; head < shape.heads; ++head) {
      f(Head(shape, qkv, lengths, first_keys, sample, head), sample * shape.heads + head);
    }
  }
}

}  // namespace

Plan plan(const AttentionForward& op, Specs specs) {
  using O = AttentionForward;
  const Shape qkv = specs[O::kQkv].shape;
  return host_op(std::move(specs), [=](Args args, void*) {
    const auto* lengths = pointer<const int32_t>(args, O::kLengths);
    const auto* first_keys = pointer<const int32_t>(args, O::kFirstKeys);
    each_head(op.shape, qkv, lengths, first_keys, [&](const Head& head, int64_t index) {
      for (int64_t i = 0; i < head.length(); ++i) {
        double* y = out(args, O::kY) + head.y(i);
        std::fill_n(y, head.dim(), 0.0);
        const double* x = in(args, O::kQkv);
        double sum = 0, largest = -std::numeric_limits<double>::infinity();
        each_score(head, x, i, [&](int64_t, double s) { largest = std::max(largest, s); });
        each_score(head, x, i, [&](int64_t, double s) { sum += std::exp(s - largest); });
        const double saved = sum > 0 ? largest + std::log(sum) : 0;
        if (out(args, O::kSaved)) out(args, O::kSaved)[index * head.length() + i] = saved;
        each_score(head, x, i, [&](int64_t j, double s) {
          const double p = std::exp(s - saved);
          for (int64_t d = 0; d < head.dim(); ++d) y[d] += p * x[head.v(j) + d];
        });
      }
    });
  });
}

Plan plan(const AttentionBackward& op, Specs specs) {
  using O = AttentionBackward;
  const Shape qkv = specs[O::kQkv].shape;
  return host_op(std::move(specs), [=](Args args, void*) {
    const double* x = in(args, O::kQkv);
    double* dx = out(args, O::kDqkv);
    std::fill_n(dx, qkv.elements(), 0.0);
    const auto* lengths = pointer<const int32_t>(args, O::kLengths);
    const auto* first_keys = pointer<const int32_t>(args, O::kFirstKeys);
    each_head(op.shape, qkv, lengths, first_keys, [&](const Head& head, int64_t index) {
      for (int64_t i = 0; i < head.length(); ++i) {
        const double* dy = in(args, O::kDy) + head.y(i);
        const double delta = product(dy, in(args, O::kY) + head.y(i), head.dim());
        each_score(head, x, i, [&](int64_t j, double s) {
          const double p = std::exp(s - in(args, O::kSaved)[index * head.length() + i]);
          const double ds = head.scale() * p * (product(dy, x + head.v(j), head.dim()) - delta);
          for (int64_t d = 0; d < head.dim(); ++d) {
            dx[head.v(j) + d] += p * dy[d];
            dx[head.q(i) + d] += ds * x[head.k(j) + d];
            dx[head.k(j) + d] += ds * x[head.q(i) + d];
          }
        });
      }
    });
  });
}

}  // namespace trireme::ops::reference
