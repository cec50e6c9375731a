// A fake of cuDNN's attention with plain loops. It writes NaN where cuDNN's results are undefined.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/cuda/cuda.h"
#include "emulation.h"
#include "ops/cuda/attention_kernels.h"
#include "ops/cuda/cudnn.h"
#include "ops/cuda/values.h"

namespace trireme::ops::cuda {
namespace {

using Fused = FusedAttention;

// Attention of one head of one sample.
struct Head {
  const FusedAttention& a;
  int64_t sample, head, valid;

  size_t q(int64_t t) const { return at(t, a.row(), head * a.dim); }
  size_t k(int64_t t) const { return at(t, a.row(), a.keys() + kv() * a.dim); }
  size_t v(int64_t t) const { return at(t, a.row(), a.values() + kv() * a.dim); }
  size_t y(int64_t t) const { return at(t, a.y_row(), head * a.dim); }
  size_t saved(int64_t t) const {
    return static_cast<size_t>((sample * a.shape.heads + head) * a.length + t);
  }
  int64_t end(int64_t query) const { return a.shape.causal ? std::min(valid, query + 1) : valid; }
  double dot(const Values& x, size_t i, const Values& y, size_t j) const {
    double sum = 0;
    for (size_t d = 0; d < static_cast<size_t>(a.dim); ++d) sum += x[i + d] * y[j + d];
    return sum;
  }
  // y[j] += factor * x[i], for all elements of a head.
  void add(double factor, const Values& x, size_t i, Values& y, size_t j) const {
    for (size_t d = 0; d < static_cast<size_t>(a.dim); ++d) y[j + d] += factor * x[i + d];
  }

  void forward(const Values& qkv, Values& out, Values& stats) const {
    for (int64_t query = 0; query < valid; ++query) {
      std::vector<double> scores;
      for (int64_t t = 0; t < end(query); ++t) {
        scores.push_back(double{a.shape.scale} * dot(qkv, q(query), qkv, k(t)));
      }
      const double largest = *std::ranges::max_element(scores);
      double total = 0;
      for (double score : scores) total += std::exp(score - largest);
      stats[saved(query)] = largest + std::log(total);
      std::fill_n(out.begin() + static_cast<ptrdiff_t>(y(query)), a.dim, 0.0);
      for (int64_t t = 0; t < end(query); ++t) {
        const double p = std::exp(scores[static_cast<size_t>(t)] - stats[saved(query)]);
        add(p, qkv, v(t), out, y(query));
      }
    }
  }

  void backward(const Values& qkv, const Values& out, const Values& stats, const Values& dy,
                Values& dqkv) const {
    for (int64_t query = 0; query < valid; ++query) {
      const double delta = dot(out, y(query), dy, y(query));
      for (int64_t t = 0; t < end(query); ++t) {
        const double score = double{a.shape.scale} * dot(qkv, q(query), qkv, k(t));
        const double p = std::exp(score - stats[saved(query)]);
        const double ds = double{a.shape.scale} * p * (dot(dy, y(query), qkv, v(t)) - delta);
        add(p, dy, y(query), dqkv, v(t));
        add(ds, qkv, k(t), dqkv, q(query));
        add(ds, qkv, q(query), dqkv, k(t));
      }
    }
  }

 private:
  int64_t kv() const { return head * a.shape.kv_heads / a.shape.heads; }
  size_t at(int64_t t, int64_t row, int64_t column) const {
    return static_cast<size_t>((sample * a.length + t) * row + column);
  }
};

class AttentionLoops final : public Algorithm {
 public:
  explicit AttentionLoops(const FusedAttention& attention) : a_(attention) {}

  size_t workspace_bytes() const override {
    return static_cast<size_t>(a_.samples) * sizeof(int32_t);
  }

  void run(Stream& stream, Args args, void* workspace) const override {
    for (const void* arg : args) require_aligned(arg, sizeof(int32_t));
    for (const int arg : {Fused::kQkv, Fused::kY, Fused::kDy, Fused::kDqkv}) {
      require_aligned(args[static_cast<size_t>(arg)], kTensorAlignment);
    }
    require_aligned(workspace, kDeviceAlignment);
    std::vector<void*> copy(args.begin(), args.end());
    if (a_.padded) {
      encode_valid_lengths(stream, pointer<int32_t>(args, Fused::kLengths), a_.samples, a_.length,
                           static_cast<int32_t*>(workspace));
      copy[Fused::kLengths] = workspace;
    }
    trireme::cuda::check(emulation::enqueue(trireme::cuda::handle(stream), "attention",
                                            [a = a_, copy] {
                                              a.pass == AttentionPass::kBackward ? backward(a, copy)
                                                                                 : forward(a, copy);
                                            }),
                         "attention");
  }

 private:
  static Values undefined(int64_t count) {
    return Values(static_cast<size_t>(count), std::numeric_limits<double>::quiet_NaN());
  }
  // Calls f(head) for all heads of all samples.
  template <class F>
  static void each_head(const FusedAttention& a, Args args, F f) {
    const auto* lengths = pointer<int32_t>(args, Fused::kLengths);
    for (int64_t sample = 0; sample < a.samples; ++sample) {
      for (int64_t head = 0; head < a.shape.heads; ++head) {
        f(Head{a, sample, head, a.padded ? lengths[sample] : a.length});
      }
    }
  }

  static void forward(const FusedAttention& a, Args args) {
    const int64_t rows = a.samples * a.length;
    const Values qkv = read(args[Fused::kQkv], a.dtype, rows * a.row());
    Values y = undefined(rows * a.y_row()), saved = undefined(rows * a.shape.heads);
    each_head(a, args, [&](const Head& head) { head.forward(qkv, y, saved); });
    write(y, a.dtype, args[Fused::kY]);
    if (a.pass == AttentionPass::kForward) write(saved, DType::kF32, args[Fused::kSaved]);
  }

  static void backward(const FusedAttention& a, Args args) {
    const int64_t rows = a.samples * a.length;
    const Values qkv = read(args[Fused::kQkv], a.dtype, rows * a.row());
    const Values y = read(args[Fused::kY], a.dtype, rows * a.y_row());
    const Values dy = read(args[Fused::kDy], a.dtype, rows * a.y_row());
    const Values saved = read(args[Fused::kSaved], DType::kF32, rows * a.shape.heads);
    Values dqkv(qkv.size());
    each_head(a, args, [&](const Head& head) {
      head.backward(qkv, y, saved, dy, dqkv);
      for (int64_t t = head.valid; t < a.length; ++t) dqkv[head.q(t)] = std::nan("");
    });
    write(dqkv, a.dtype, args[Fused::kDqkv]);
  }

  FusedAttention a_;
};

}  // namespace

// As cuDNN 9.19 on an A100.
AlgorithmPtr find_attention(const Context&, const FusedAttention& a) {
  constexpr int64_t kMaxDim = 128;
  if (size_of(a.dtype) != 2 || a.dim % 8 != 0 || a.dim > kMaxDim || a.length < 2) {
    throw Unsupported("cuDNN would not support this attention");
  }
  return std::make_shared<AttentionLoops>(a);
}

}  // namespace trireme::ops::cuda
