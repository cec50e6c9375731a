// Exports the layers of sequences, most of which are several operators in ONNX.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/graph.h"
#include "model/model.pb.h"
#include "model/onnx/writer.h"
#include "model/weights.h"

namespace trireme::model::onnx {

// Values of sequences are [N, T, F], with a dynamic N and possibly a dynamic T. Each function
// writes a layer and returns the name of its output; `x` is the name of its input.
class SequenceWriter {
 public:
  // `tokens` is the name of the network's input. Weights have all parameters of the layers that are
  // written, or there are none; then layers read parameters that are not among the constants. If
  // `dynamic` is set, all sequences have as many rows as the input has tokens, up to the length of
  // the samples.
  SequenceWriter(ModelWriter& writer, const Weights& weights, std::string tokens, bool dynamic)
      : out_(writer), weights_(weights), tokens_(std::move(tokens)), dynamic_(dynamic) {}

  std::string embedding(const EmbeddingConfig& config, const Node& node);
  std::string dense(const DenseConfig& config, const Node& node, const std::string& x);
  std::string attention(const AttentionConfig& config, const Node& node, const std::string& x);
  std::string rms_norm(const RmsNormConfig& config, const Node& node, const std::string& x);
  std::string swiglu(const Node& node, const std::string& x);
  std::string to_sequence(const Node& node, const std::string& x);
  std::string class_token(const ClassTokenConfig& config, const Node& node, const std::string& x);
  std::string token_pool(const TokenPoolConfig& config, const Node& node, const std::string& x);
  // Throws ConfigError if the layer distinguishes documents.
  std::string recurrent(const RecurrentConfig& config, bool lstm, const Node& node,
                        const std::string& x);

  // Adds a parameter of a layer, which may be that of another layer (tied weights).
  std::string parameter(const Node& node, const char* name);
  // Adds the rows of a table of positions that samples have.
  std::string positions(const Node& node);

 private:
  struct Heads;  // the sizes of an attention layer

  const Weight& weight_of(const Node& node, const char* name) const;
  std::string gates(const Node& node, bool lstm, const RecurrentConfig& config,
                    const std::string& name, std::vector<std::string> names);
  // Returns the rows (axis 0) or columns (axis 1) of a constant that belong to tokens of the input.
  std::string up_to_length(const std::string& constant, int axis = 0);
  std::string segments(const EmbeddingConfig& config, const Node& node);
  std::string reshape(const std::string& name, const std::string& x, std::vector<int64_t> shape);
  std::string transpose(const std::string& name, const std::string& x,
                        const std::vector<int64_t>& order);
  std::string split_heads(const Heads& heads, const std::string& name, const std::string& x,
                          bool queries);
  std::string rotated(const Heads& heads, const std::string& name, const std::string& x,
                      double base);
  std::string masked(const AttentionConfig& config, const Heads& heads, const std::string& scores);

  // Return values that all layers share: whether a token counts, bool [N, T], and terms that are
  // added to scores of [N, ..., T, T] with `rank` dimensions.
  std::string valid(int32_t padding);
  std::string valid_rows(int32_t padding);  // f32 [N, T, 1]
  std::string causal_mask(int64_t length);
  std::string padding_mask(int32_t padding, int rank);
  std::string document_mask(int32_t end, int rank);
  // Returns 0 where `condition` holds, and elsewhere a number whose exponential is 0.
  std::string mask_where(const std::string& name, const std::string& condition);
  std::string unsqueezed(const std::string& name, const std::string& x,
                         const std::vector<int64_t>& axes);
  std::string cast(const std::string& name, const std::string& x, int64_t type);
  std::string scalar(const std::string& name, float value) {
    return out_.floats(name, {}, {value});
  }

  // Returns the name of a shared value, which `write` adds the first time.
  template <class Write>
  std::string shared(const std::string& name, Write write);

  ModelWriter& out_;
  const Weights& weights_;
  std::string tokens_;
  bool dynamic_;
  std::map<std::string, std::string> shared_;
};

}  // namespace trireme::model::onnx
