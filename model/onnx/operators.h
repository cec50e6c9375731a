// The ONNX operators that correspond to layers, or to parts of layers that exporters write.
#pragma once

#include <array>
#include <optional>
#include <span>

#include "model/onnx/importer.h"

namespace trireme::model::onnx {

using Pair = std::array<int64_t, 2>;  // height and width

class Operators final : public Importer {
 public:
  using Importer::Importer;

 private:
  Handler handler(std::string_view op) const override;

  // --- Operators that are layers.
  void activation(const NodeView& node);
  void average_pool(const NodeView& node);
  void batch_norm(const NodeView& node);
  void concat(const NodeView& node);
  void conv(const NodeView& node);
  void dropout(const NodeView& node);
  void flatten(const NodeView& node);
  void gemm(const NodeView& node);
  void global_average_pool(const NodeView& node);
  void group_norm(const NodeView& node);
  void instance_norm(const NodeView& node);
  void layer_norm(const NodeView& node);
  void mat_mul(const NodeView& node);
  void max_pool(const NodeView& node);
  void reduce_mean(const NodeView& node);
  void reshape(const NodeView& node);
  void softmax(const NodeView& node);
  void squeeze(const NodeView& node);
  void transpose(const NodeView& node);
  void dense(const NodeView& node, bool transposed);
  void add_flatten(const NodeView& node, int input);
  void add_norm_parameters(const NodeView& node, int layer, const Shape& channels);
  bool from_groups(const NodeView& node, std::span<const int64_t> to);
  std::optional<int64_t> groups_of(int input, std::span<const int64_t> to) const;
  int add_group_norm(const NodeView& node, int input, int64_t groups);
  struct Window {
    Pair kernel{1, 1};
    Pair stride{1, 1};
    Pair padding{0, 0};
    Pair dilation{1, 1};
  };
  Window window(const NodeView& node, int input, Pair kernel) const;
  PoolConfig pool(const NodeView& node, int input) const;

  // --- Operators on constants and shapes.
  void cast(const NodeView& node);
  void constant(const NodeView& node);
  void gather(const NodeView& node);
  void identity(const NodeView& node);
  void shape(const NodeView& node);
  void unsqueeze(const NodeView& node);
};

inline bool is_one_of(int64_t value, std::initializer_list<int64_t> choices) {
  for (const int64_t choice : choices) {
    if (value == choice) return true;
  }
  return false;
}

}  // namespace trireme::model::onnx
