// The properties that ops declare, against the behavior of the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/ops/evaluate.h"

namespace trireme::ops {
namespace {

struct Example {
  Op op;
  std::vector<Tensor> tensors;
};

Tensor some(const Shape& shape) {
  static uint64_t stream = 0;
  return random_numbers(shape, ++stream);
}
Tensor positive(const Shape& shape) {
  Tensor tensor = some(shape);
  for (int64_t i = 0; i < tensor.size(); ++i) tensor[i] = 1 + std::abs(tensor[i]);
  return tensor;
}
Tensor state() {
  return state_of({.step = 1,
                   .seed = 2,
                   .first_sample = 3,
                   .valid_rows = 2,
                   .learning_rate = 0.5f,
                   .loss_gradient_scale = 0.5f});
}
Tensor loss_scale() { return loss_scale_of({.scale = 4, .good_steps = 5, .skipped = 1}); }

void add_layers(std::vector<Example>& all) {
  const Shape x{2, 2, 3, 3}, w{3, 2, 2, 2}, y{2, 3, 2, 2};
  all.push_back({Conv2dForward{}, {some(x), some(w), some({3}), unwritten(y)}});
  all.push_back({Conv2dBackwardData{}, {some(y), some(w), unwritten(x)}});
  all.push_back({Conv2dBackwardWeights{}, {some(x), some(y), unwritten(w), unwritten({3})}});
  all.push_back({DenseForward{Activation::kGelu},
                 {some({2, 3}), some({4, 3}), some({4}), unwritten({2, 4}), unwritten({2, 4})}});
  all.push_back({DenseBackwardData{Activation::kGelu},
                 {some({2, 4}), some({4, 3}), unwritten({2, 3}), some({2, 3})}});
  all.push_back(
      {DenseBackwardWeights{}, {some({2, 3}), some({2, 4}), unwritten({4, 3}), unwritten({4})}});
  all.push_back({ActivationForward{Activation::kGelu}, {some(x), unwritten(x)}});
  all.push_back({ActivationBackward{Activation::kGelu}, {some(x), some(x), unwritten(x)}});
  all.push_back({LayerNormForward{},
                 {some({2, 3}), some({3}), some({3}), unwritten({2, 3}), unwritten({2, 2})}});
  all.push_back({LayerNormBackward{},
                 {some({2, 3}), some({2, 3}), some({3}), some({2, 2}), unwritten({2, 3}),
                  unwritten({3}), unwritten({3})}});
  all.push_back(
      {GroupNormForward{2},
       {some({2, 4, 2}), some({4}), some({4}), unwritten({2, 4, 2}), unwritten({2, 2, 2})}});
  all.push_back({GroupNormBackward{2},
                 {some({2, 4, 2}), some({2, 4, 2}), some({4}), some({2, 2, 2}), state(),
                  unwritten({2, 4, 2}), unwritten({4}), unwritten({4})}});
  all.push_back({EmbeddingForward{},
                 {labels_of({1, 0, 1, 2}), some({3, 5}), some({2, 5}), labels_of({0, 1}),
                  unwritten({4, 5})}});
  all.push_back({EmbeddingBackward{},
                 {labels_of({1, 0, 1, 2}), some({4, 5}), some({3, 5}), unwritten({3, 5}),
                  unwritten({2, 5})}});
  const AttentionShape heads{.heads = 2, .kv_heads = 1, .causal = true};
  const Tensor first_keys = stored<int32_t>(DType::kI32, {2, 3}, {0, 0, 2, 0, 1, 1});
  all.push_back({AttentionForward{heads},
                 {some({2, 3, 8}), labels_of({2, 3}), first_keys, unwritten({2, 3, 4}),
                  unwritten({2, 2, 3})}});
  all.push_back({AttentionBackward{heads},
                 {some({2, 3, 8}), labels_of({2, 3}), first_keys, some({2, 3, 4}), some({2, 2, 3}),
                  some({2, 3, 4}), unwritten({2, 3, 8})}});
  all.push_back(
      {CachedAttention{heads},
       {some({2, 3, 8}), labels_of({2, 0}), first_keys, some({2, 5, 4}), unwritten({2, 3, 4})}});
  const auto i32 = [](const Shape& shape) {
    const auto count = static_cast<size_t>(shape.elements());
    return stored(DType::kI32, shape, std::vector<int32_t>(count, 7));
  };
  all.push_back({SequenceLengths{2}, {i32({2, 3}), i32({2})}});
  all.push_back({DocumentStarts{2}, {i32({2, 3}), labels_of({2, 0}), i32({2, 5}), i32({2, 3})}});
  all.push_back({SegmentIds{2, 2}, {i32({2, 3}), i32({2, 3})}});
  all.push_back(
      {ClassTokenForward{}, {some({2, 3, 4}), some({4}), some({4, 4}), unwritten({2, 4, 4})}});
  all.push_back({ClassTokenBackward{},
                 {some({2, 4, 4}), unwritten({2, 3, 4}), unwritten({4}), unwritten({4, 4})}});
  all.push_back(
      {PoolTokensForward{{1, 0}}, {some({2, 3, 4}), labels_of({3, 2}), unwritten({2, 4})}});
  all.push_back(
      {PoolTokensBackward{{1, 0}}, {some({2, 4}), labels_of({3, 2}), unwritten({2, 3, 4})}});
  all.push_back({Rotary{.length = 2, .heads = 1, .head_dim = 4},
                 {some({4, 5}), labels_of({1, 0}), unwritten({4, 5})}});
  all.push_back({SwigluForward{}, {some({2, 6}), unwritten({2, 3})}});
  all.push_back({SwigluBackward{}, {some({2, 6}), some({2, 3}), unwritten({2, 6})}});
  all.push_back({DropoutForward{}, {some(x), state(), unwritten(x)}});
  all.push_back({DropoutBackward{}, {some(x), state(), unwritten(x)}});
}

void add_recurrent(std::vector<Example>& all) {
  constexpr RecurrentCell kGru = RecurrentCell::kGru;
  const Shape x{2, 3, 4}, y{2, 3, 5}, state{2, 1, 5}, weight_ih{15, 4}, weight_hh{15, 5}, bias{15};
  Tensor tokens = labels_of({1, 2, 0, 0, 3, 1});
  tokens.spec.shape = {2, 3};
  Example forward{RecurrentForward{kGru},
                  {some(x), some(weight_ih), some(weight_hh), some(bias), some(bias), some(state),
                   tokens, unwritten(y), unwritten(state), unsized()}};
  std::vector<Tensor> done = forward.tensors;
  evaluate(forward.op, done);
  Tensor& workspace = forward.tensors.back();
  workspace = done.back();
  std::fill(workspace.memory.begin(), workspace.memory.end(), std::byte{0xFF});
  all.push_back(forward);
  all.push_back({RecurrentBackward{kGru},
                 {some(x), some(weight_ih), some(weight_hh), some(state), tokens, some(y),
                  done.back(), some(y), unwritten(x), unwritten(weight_ih), unwritten(weight_hh),
                  unwritten(bias), unwritten(bias)}});
  all.push_back({CachedRecurrent{kGru},
                 {some(x), some(weight_ih), some(weight_hh), some(bias), some(bias),
                  labels_of({0, 3}), tokens, some({2, 5, 1, 5}), unwritten(y)}});
}

void add_batch_norms(std::vector<Example>& all) {
  const Shape x{2, 3, 2, 2};
  all.push_back({BatchNormStatistics{}, {some(x), state(), unwritten({7})}});
  all.push_back({BatchNormForward{},
                 {some(x), some(x), some({3}), some({3}), positive({7}), state(), some({3}),
                  positive({3}), unwritten(x), unwritten({6})}});
  all.push_back({BatchNormInference{},
                 {some(x), some(x), some({3}), some({3}), some({3}), positive({3}), unwritten(x)}});
  all.push_back({BatchNormBackwardSums{true},
                 {some(x), some(x), some(x), some({6}), state(), unwritten({7})}});
  all.push_back({BatchNormBackward{true},
                 {some(x), some(x), some(x), some({3}), some({6}), positive({7}), state(),
                  unwritten(x), unwritten(x), unwritten({3}), unwritten({3})}});
}

void add_pools(std::vector<Example>& all) {
  const Shape x{2, 2, 4, 4}, y{2, 2, 2, 2};
  Example max{MaxPoolForward{}, {some(x), unwritten(y), unsized()}};
  std::vector<Tensor> done = max.tensors;
  evaluate(max.op, done);
  max.tensors[2] = done[2];
  std::fill(max.tensors[2].memory.begin(), max.tensors[2].memory.end(), std::byte{0xFF});
  all.push_back(max);
  all.push_back({MaxPoolBackward{}, {some(y), done[2], unwritten(x)}});
  all.push_back({AveragePoolForward{}, {some(x), unwritten(y)}});
  all.push_back({AveragePoolBackward{}, {some(y), unwritten(x)}});
}

void add_rest(std::vector<Example>& all) {
  const Shape x{2, 3};
  all.push_back({Add{}, {some(x), some(x), unwritten(x)}});
  all.push_back({Concat{3}, {unwritten({2, 6}), some({2, 1}), some({2, 2}), some({2, 3})}});
  all.push_back(
      {Split{3}, {some({2, 6}), unwritten({2, 1}), unwritten({2, 2}), unwritten({2, 3})}});
  all.push_back({Reorder{}, {some(x), unwritten(x)}});
  all.push_back({NormalizeInput{}, {some(x), unwritten(x)}});
  all.push_back({SoftmaxCrossEntropy{},
                 {some(x), labels_of({1, 0}), state(), unwritten(x), no_metrics_yet()}});
  all.push_back({SoftmaxCrossEntropy{},
                 {some(x), stored<float>(DType::kF32, x, {0.25f, 0.75f, 0, 0.5f, 0.25f, 0.25f}),
                  state(), unwritten(x), no_metrics_yet()}});
  all.push_back({LinearCrossEntropy{},
                 {some(x), some({4, 3}), some({4}), labels_of({1, 0}), state(), unwritten(x),
                  unwritten({4, 3}), unwritten({4}), no_metrics_yet()}});
  all.push_back({MeanSquaredError{}, {some(x), some(x), state(), unwritten(x), no_metrics_yet()}});
  const std::vector<UpdateRange> range{{0, 6, 0.1f, 1}};
  const Tensor low = stored(DType::kF32, {6}, std::vector<float>(6, -1));
  all.push_back({SumOfSquares{range}, {some({6}), unwritten({1})}});
  all.push_back({TensorSquares{Lars{}, range, 1},
                 {some({6}), some({6}), positive({1}), loss_scale(), positive({kMetricCount}),
                  state(), unwritten({1, 2}), some({6})}});
  all.push_back({TrustRatios{Lars{}, range}, {positive({1, 2}), state(), unwritten({1})}});
  all.push_back({Update{SgdMomentum{.momentum = 0.5f}, range, 1},
                 {some({6}), some({6}), positive({1}), loss_scale(), positive({kMetricCount}),
                  state(), low, Tensor(), some({6}), some({6})}});
  all.push_back({Update{Lamb{}, range, 1},
                 {some({6}), some({6}), positive({1}), loss_scale(), positive({kMetricCount}),
                  state(), low, positive({1}), some({6}), some({6}), positive({6})}});
  all.push_back({ScaleLoss{}, {loss_scale(), state()}});
  all.push_back({AdjustLossScale{}, {positive({1}), loss_scale(), some({3}), some({3})}});
  // Skipped, since the square of the gradient overflows.
  all.push_back(
      {Update{Lamb{}, range, 0},
       {some({6}), some({6}), numbers({1}, {1e60}), loss_scale(), positive({kMetricCount}), state(),
        low, positive({1}), some({6}), some({6}), positive({6})}});
  all.push_back(
      {AdjustLossScale{}, {numbers({1}, {-1e60}), loss_scale(), some({3}), positive({3})}});
}

std::vector<Example> examples() {
  std::vector<Example> all;
  add_layers(all);
  add_recurrent(all);
  add_batch_norms(all);
  add_pools(all);
  add_rest(all);
  return all;
}

std::vector<Tensor*> pointers(std::vector<Tensor>& tensors) {
  std::vector<Tensor*> all;
  for (Tensor& tensor : tensors) all.push_back(&tensor);
  return all;
}

TEST(OpInfo, ExamplesCoverEveryOperation) {
  std::set<size_t> kinds;
  std::set<std::string_view> names;
  for (const Example& example : examples()) {
    kinds.insert(example.op.index());
    names.insert(name_of(example.op));
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<Op>);
  EXPECT_EQ(names.size(), std::variant_size_v<Op>);
}

TEST(OpInfo, NamesMatchTheDescriptors) {
  EXPECT_EQ(name_of(Conv2dBackwardData{}), "conv2d_backward_data");
  EXPECT_EQ(name_of(BatchNormInference{}), "batch_norm_inference");
  EXPECT_EQ(name_of(MaxPoolBackward{}), "max_pool_backward");
  EXPECT_EQ(name_of(NormalizeInput{}), "normalize_input");
  EXPECT_EQ(name_of(SoftmaxCrossEntropy{}), "softmax_cross_entropy");
  EXPECT_EQ(name_of(Update{}), "update");
  EXPECT_EQ(name_of(AdjustLossScale{}), "adjust_loss_scale");
}

TEST(OpInfo, HasEveryArg) {
  for (const Example& example : examples()) {
    std::visit(
        []<class O>(const O&) {
          if constexpr (requires { O::kArgs; }) {
            EXPECT_EQ(O::kInfo.args.size(), size_t{O::kArgs}) << O::kInfo.name;
          }
        },
        example.op);
  }
}

// An output is written in at least one of the examples of an op; a skipped step has other outputs.
TEST(OpInfo, OutputsAreTheWrittenArgs) {
  std::map<std::pair<std::string, size_t>, bool> is_written;
  for (Example& example : examples()) {
    const std::string name{name_of(example.op)};
    const std::vector<Tensor> before = example.tensors;
    evaluate(example.op, example.tensors);
    for (size_t i = 0; i < before.size(); ++i) {
      const bool written = example.tensors[i].memory != before[i].memory;
      const bool output = is_output(example.op, static_cast<int>(i));
      EXPECT_TRUE(output || !written) << name << ", argument " << i;
      if (output && !before[i].memory.empty()) is_written[{name, i}] |= written;
    }
  }
  for (const auto& [output, written] : is_written) {
    EXPECT_TRUE(written) << output.first << ", argument " << output.second;
  }
}

TEST(OpInfo, AliasesDoNotChangeResults) {
  int tried = 0;
  for (const Example& example : examples()) {
    std::vector<Tensor> apart = example.tensors;
    evaluate(example.op, apart);
    for (auto [output, input] : aliases(example.op)) {
      SCOPED_TRACE(testing::Message() << name_of(example.op) << " " << output << " " << input);
      ASSERT_TRUE(is_output(example.op, output));
      ASSERT_FALSE(is_output(example.op, input));
      std::vector<Tensor> tensors = example.tensors;
      std::vector<Tensor*> args = pointers(tensors);
      args[static_cast<size_t>(output)] = args[static_cast<size_t>(input)];
      evaluate(example.op, args);
      for (size_t i = 0; i < args.size(); ++i) {
        if (!is_output(example.op, static_cast<int>(i))) continue;
        EXPECT_EQ(args[i]->memory, apart[i].memory) << "argument " << i;
      }
      ++tried;
    }
  }
  EXPECT_GT(tried, 10);
}

TEST(OpInfo, FlopsCountMultiplyAndAdd) {
  const auto row_major = [](const Shape& shape) {
    return TensorSpec{DType::kF32, shape, Layout::row_major()};
  };
  const TensorSpec x = row_major({2, 6, 8, 8}), w = row_major({4, 3, 3, 3});
  const TensorSpec y = row_major({2, 4, 6, 6}), none = absent();
  const Conv2dGeometry groups{.groups = 2};
  constexpr double kConvolution = 2.0 * (2 * 4 * 6 * 6) * (3 * 3 * 3);
  EXPECT_EQ(flops(Conv2dForward{groups}, std::vector{x, w, none, y}), kConvolution);
  EXPECT_EQ(flops(Conv2dBackwardData{groups}, std::vector{y, w, x}), kConvolution);
  EXPECT_EQ(flops(Conv2dBackwardWeights{groups}, std::vector{x, y, w, none}), kConvolution);

  const TensorSpec rows = row_major({5, 7}), matrix = row_major({3, 7}), out = row_major({5, 3});
  constexpr double kDense = 2.0 * 5 * 7 * 3;
  EXPECT_EQ(flops(DenseForward{}, std::vector{rows, matrix, none, out, none}), kDense);
  EXPECT_EQ(flops(DenseBackwardData{}, std::vector{out, matrix, rows, none}), kDense);
  EXPECT_EQ(flops(DenseBackwardWeights{}, std::vector{rows, out, matrix, none}), kDense);
  std::vector loss{rows, matrix, none, none, none, rows, matrix, none, none};
  EXPECT_EQ(flops(LinearCrossEntropy{}, loss), 3 * kDense);
  loss[LinearCrossEntropy::kDx] = none;
  EXPECT_EQ(flops(LinearCrossEntropy{}, loss), 2 * kDense);
  EXPECT_EQ(flops(Add{}, std::vector{x, x, x}), 0);
}

}  // namespace
}  // namespace trireme::ops
