// Attention with cuDNN's fused engines, in f16 and bf16. Gradients are computed with the
// deterministic algorithm, which stores the gradients of all scores in its workspace.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/alignment.h"
#include "ops/cuda/attention_kernels.h"
#include "ops/cuda/cudnn_graph.h"
#include "ops/cuda/libraries.h"

namespace trireme::ops::cuda {
namespace {

// The unique IDs of the tensors. The lengths of queries and keys are the same memory.
enum AttentionTensor : int64_t {
  kQueries = 1,
  kKeys,
  kValues,
  kOutput,
  kStats,
  kQueryLengths,
  kKeyLengths,
  kOutputGradient,
  kQueryGradient,
  kKeyGradient,
  kValueGradient,
};

using Pass = AttentionPass;
using Attributes = fe::graph::Tensor_attributes;

// Describes heads [B, H, T, D] in rows of `row` elements, which hold all heads.
void describe_heads(Attributes& tensor, AttentionTensor id, const FusedAttention& a, int64_t heads,
                    int64_t row) {
  tensor.set_uid(id)
      .set_dim({a.samples, heads, a.length, a.dim})
      .set_stride({a.length * row, a.dim, row, 1})
      .set_data_type(to_cudnn(a.dtype));
}

CudnnTensor heads(fe::graph::Graph& graph, AttentionTensor id, const FusedAttention& a,
                  int64_t count, int64_t row) {
  Attributes tensor;
  describe_heads(tensor, id, a, count, row);
  return graph.tensor(tensor);
}

void describe_stats(Attributes& tensor, const FusedAttention& a) {
  tensor.set_uid(kStats)
      .set_dim({a.samples, a.shape.heads, a.length, 1})
      .set_stride({a.shape.heads * a.length, a.length, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

CudnnTensor lengths(fe::graph::Graph& graph, AttentionTensor id, const FusedAttention& a) {
  return graph.tensor(Attributes()
                          .set_uid(id)
                          .set_dim({a.samples, 1, 1, 1})
                          .set_stride({1, 1, 1, 1})
                          .set_data_type(fe::DataType_t::INT32));
}

// Sets what both passes have in common.
template <class Options>
Options options_of(fe::graph::Graph& graph, const FusedAttention& a) {
  Options options;
  options.set_attn_scale(a.shape.scale);
  if (a.shape.causal) options.set_causal_mask(true);
  if (a.padded) {
    options.set_padding_mask(true)
        .set_seq_len_q(lengths(graph, kQueryLengths, a))
        .set_seq_len_kv(lengths(graph, kKeyLengths, a));
  }
  return options;
}

void describe_forward(fe::graph::Graph& graph, const FusedAttention& a) {
  auto options = options_of<fe::graph::SDPA_attributes>(graph, a);
  options.set_generate_stats(a.pass == Pass::kForward);
  const auto [y, stats] = graph.sdpa(heads(graph, kQueries, a, a.shape.heads, a.row()),
                                     heads(graph, kKeys, a, a.shape.kv_heads, a.row()),
                                     heads(graph, kValues, a, a.shape.kv_heads, a.row()), options);
  describe_heads(y->set_output(true), kOutput, a, a.shape.heads, a.y_row());
  if (a.pass == Pass::kForward) describe_stats(stats->set_output(true), a);
}

void describe_backward(fe::graph::Graph& graph, const FusedAttention& a) {
  auto options = options_of<fe::graph::SDPA_backward_attributes>(graph, a);
  options.set_deterministic_algorithm(true);
  Attributes stats;
  describe_stats(stats, a);
  const auto [dq, dk, dv] = graph.sdpa_backward(
      heads(graph, kQueries, a, a.shape.heads, a.row()),
      heads(graph, kKeys, a, a.shape.kv_heads, a.row()),
      heads(graph, kValues, a, a.shape.kv_heads, a.row()),
      heads(graph, kOutput, a, a.shape.heads, a.y_row()),
      heads(graph, kOutputGradient, a, a.shape.heads, a.y_row()), graph.tensor(stats), options);
  describe_heads(dq->set_output(true), kQueryGradient, a, a.shape.heads, a.row());
  describe_heads(dk->set_output(true), kKeyGradient, a, a.shape.kv_heads, a.row());
  describe_heads(dv->set_output(true), kValueGradient, a, a.shape.kv_heads, a.row());
}

// The valid lengths of the samples lie at the beginning of the workspace.
class AttentionEngine final : public Algorithm {
 public:
  AttentionEngine(CudnnEngine engine, const FusedAttention& attention)
      : engine_(std::move(engine)), a_(attention) {
    if (a_.padded) {
      lengths_bytes_ = device_aligned(static_cast<size_t>(a_.samples) * sizeof(int32_t));
    }
  }

  size_t workspace_bytes() const override { return lengths_bytes_ + engine_.workspace_bytes(); }

  void run(Stream& stream, Args args, void* workspace) const override {
    using A = FusedAttention;
    auto* const valid = static_cast<int32_t*>(workspace);
    if (a_.padded) {
      encode_valid_lengths(stream, pointer<int32_t>(args, A::kLengths), a_.samples, a_.length,
                           valid);
    }
    std::array<void*, kValueGradient> tensors;
    size_t count = 0;
    const auto add = [&](void* tensor) { tensors[count++] = tensor; };
    const auto add_parts = [&](void* rows) {
      auto* const begin = static_cast<std::byte*>(rows);
      for (const int64_t part : {int64_t{0}, a_.keys(), a_.values()}) {
        add(begin + static_cast<size_t>(part) * size_of(a_.dtype));
      }
    };
    add_parts(args[A::kQkv]);
    add(args[A::kY]);
    if (a_.pass != Pass::kInference) add(args[A::kSaved]);
    if (a_.padded) {
      add(valid);
      add(valid);
    }
    if (a_.pass == Pass::kBackward) {
      add(args[A::kDy]);
      add_parts(args[A::kDqkv]);
    }
    engine_.run(stream, std::span(tensors).first(count),
                static_cast<std::byte*>(workspace) + lengths_bytes_);
  }

 private:
  CudnnEngine engine_;
  FusedAttention a_;
  size_t lengths_bytes_ = 0;
};

}  // namespace

std::vector<Candidate> list_attention(const std::shared_ptr<Cudnn>& cudnn,
                                      const FusedAttention& attention) {
  if (size_of(attention.dtype) != 2) {
    throw Unsupported(
        fmt::format("cuDNN's attention does not compute with {}", name_of(attention.dtype)));
  }
  const CudnnGraph graph = create_cudnn_graph(*cudnn);
  attention.pass == Pass::kBackward ? describe_backward(*graph, attention)
                                    : describe_forward(*graph, attention);
  require_cudnn(graph->validate());
  return list_engines(cudnn, graph, {fe::NumericalNote_t::NONDETERMINISTIC},
                      [attention](CudnnEngine engine) {
                        return std::make_shared<AttentionEngine>(std::move(engine), attention);
                      });
}

AlgorithmPtr find_attention(const Context& context, const FusedAttention& attention) {
  Libraries& libraries = *context.libraries;
  return libraries.engines.choose(key(attention), bytes(attention),
                                  [&] { return list_attention(libraries.cudnn, attention); });
}

}  // namespace trireme::ops::cuda
