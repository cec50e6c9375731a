// Plans must reject invalid shapes, with messages that name the actual and the required one.
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "ops/step_state.h"
#include "ops/window.h"
#include "tests/ops/reference/reference_backend.h"

namespace trireme::ops {
namespace {

struct Maker {
  const char* name;
  std::unique_ptr<Backend> (*create)(Device&);
  DType dtype;
};

class ShapeChecks : public testing::TestWithParam<Maker> {
 protected:
  TensorSpec of(const Shape& shape) const { return {GetParam().dtype, shape, Layout::row_major()}; }
  TensorSpec metrics() const { return {DType::kF32, {kMetricCount}, Layout::row_major()}; }
  TensorSpec state() const {
    return {DType::kU8, {int64_t{sizeof(StepState)}}, Layout::row_major()};
  }
  TensorSpec loss_scale() const {
    return {DType::kU8, {int64_t{sizeof(LossScale)}}, Layout::row_major()};
  }
  TensorSpec labels(int64_t rows) const { return {DType::kI32, {rows}, Layout::row_major()}; }

  // Returns the error message, or "accepted".
  std::string refusal(const Op& op, const std::vector<TensorSpec>& specs) {
    try {
      backend->plan(op, specs);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  std::unique_ptr<Device> device = create_cpu_device(1);
  std::unique_ptr<Backend> backend = GetParam().create(*device);
};

#define EXPECT_REFUSED(op, specs, wanted) \
  EXPECT_NE(refusal(op, specs).find(wanted), std::string::npos) << refusal(op, specs)

using Specs = std::vector<TensorSpec>;

TEST_P(ShapeChecks, AcceptsValidShapes) {
  EXPECT_EQ(refusal(Conv2dForward{},
                    Specs{of({2, 3, 5, 5}), of({4, 3, 3, 3}), of({4}), of({2, 4, 3, 3})}),
            "accepted");
  EXPECT_EQ(refusal(DenseForward{}, Specs{of({2, 3}), of({4, 3}), absent(), of({2, 4}), absent()}),
            "accepted");
}

TEST_P(ShapeChecks, RejectsTooFewTensors) {
  EXPECT_REFUSED(Add{}, (Specs{of({2}), of({2})}), "add: takes 3 tensors, got 2");
  EXPECT_REFUSED(Concat{3}, (Specs{of({2, 2}), of({2, 1}), of({2, 1})}),
                 "concat: takes 4 tensors, got 3");
}

TEST_P(ShapeChecks, RejectsMissingTensors) {
  const TensorSpec x = of({2, 3});
  EXPECT_REFUSED(DropoutForward{}, (Specs{x, absent(), x}), "dropout_forward: state is missing");
}

TEST_P(ShapeChecks, RejectsInvalidConvolutions) {
  const TensorSpec x = of({2, 3, 5, 5}), w = of({4, 3, 3, 3}), b = of({4}), y = of({2, 4, 3, 3});
  EXPECT_REFUSED(Conv2dForward{}, (Specs{x, w, b, of({2, 4, 4, 3})}),
                 "conv2d_forward: y must be [2, 4, 3, 3], got [2, 4, 4, 3]");
  EXPECT_REFUSED(Conv2dForward{}, (Specs{x, w, of({3}), y}), "bias must be [4], got [3]");
  EXPECT_REFUSED(Conv2dForward{}, (Specs{x, of({4, 2, 3, 3}), b, y}),
                 "weight [4, 2, 3, 3] in 1 groups does not fit x [2, 3, 5, 5]");
  EXPECT_REFUSED(Conv2dForward{}, (Specs{of({2, 75}), w, b, y}),
                 "x must have 4 dimensions, got [2, 75]");
  EXPECT_REFUSED(Conv2dForward{}, (Specs{of({2, 3, 2, 5}), w, b, of({2, 4, 0, 3})}),
                 "the window does not fit into x [2, 3, 2, 5]");
  EXPECT_REFUSED((Conv2dForward{.geometry = {.stride = {1, 0}}}), (Specs{x, w, b, y}),
                 "stride must be at least 1, got 0");
  EXPECT_REFUSED((Conv2dForward{.geometry = {}, .activation = Activation::kGelu}),
                 (Specs{x, w, b, y}), "cannot fuse gelu");
  EXPECT_REFUSED(Conv2dBackwardData{}, (Specs{y, w, of({2, 3, 6, 5})}),
                 "conv2d_backward_data: dy must be [2, 4, 4, 3], got [2, 4, 3, 3]");
  EXPECT_REFUSED(Conv2dBackwardWeights{}, (Specs{x, y, w, of({5})}), "dbias must be [4], got [5]");
}

TEST_P(ShapeChecks, RejectsInvalidDenseLayers) {
  EXPECT_REFUSED(DenseForward{}, (Specs{of({2, 3}), of({4, 2}), absent(), of({2, 4}), absent()}),
                 "dense_forward: weight [4, 2] does not fit x [2, 3]");
  EXPECT_REFUSED(DenseForward{}, (Specs{of({2, 3}), of({4, 3}), absent(), of({2, 3}), absent()}),
                 "y must be [2, 4], got [2, 3]");
  EXPECT_REFUSED(DenseForward{}, (Specs{of({2, 3}), of({4, 3}), absent(), of({2, 4}), of({2, 4})}),
                 "without an activation, z is y");
  EXPECT_REFUSED(DenseBackwardData{}, (Specs{of({2, 4}), of({4, 3}), of({2, 3}), of({2, 3})}),
                 "takes the saved tensor of an activation, and only of one");
}

TEST_P(ShapeChecks, RejectsInvalidPools) {
  const Specs specs{of({1, 2, 4, 4}), of({1, 2, 2, 2})};
  EXPECT_REFUSED(AveragePoolForward{}, (Specs{specs[0], of({1, 2, 2, 3})}),
                 "average_pool_forward: y must be [1, 2, 2, 2], got [1, 2, 2, 3]");
  EXPECT_REFUSED((AveragePoolForward{{.kernel = {2, 2}, .stride = {2, 2}, .padding = {0, 2}}}),
                 specs, "padding 2 must be less than the kernel 2");
  EXPECT_REFUSED(MaxPoolForward{}, (Specs{of({1, 2, 1, 4}), of({1, 2, 0, 2}), absent()}),
                 "the window does not fit into x [1, 2, 1, 4]");
}

TEST_P(ShapeChecks, RejectsInvalidNorms) {
  const TensorSpec x = of({4, 3, 2, 2}), c = of({3});
  EXPECT_REFUSED(BatchNormInference{}, (Specs{x, absent(), c, of({4}), c, c, x}),
                 "batch_norm_inference: beta must be [3], got [4]");
  EXPECT_REFUSED(BatchNormInference{}, (Specs{x, of({4, 3, 2, 1}), c, c, c, c, x}),
                 "residual must be [4, 3, 2, 2], got [4, 3, 2, 1]");
  EXPECT_REFUSED(LayerNormForward{}, (Specs{of({4, 3}), c, c, of({4, 3}), of({4})}),
                 "saved must be [4, 2], got [4]");
}

TEST_P(ShapeChecks, RejectsInvalidConcatenations) {
  EXPECT_REFUSED(Concat{2}, (Specs{of({2, 4}), of({2, 1}), of({2, 2})}),
                 "concat: y must be [2, 3], got [2, 4]");
  EXPECT_REFUSED(Split{2}, (Specs{of({2, 3, 2}), of({2, 1, 2}), of({2, 2, 3})}),
                 "split: output 1 must be [2, 2, 2], got [2, 2, 3]");
  EXPECT_REFUSED(Add{}, (Specs{of({2, 3}), of({3, 2}), of({2, 3})}),
                 "add: b must be [2, 3], got [3, 2]");
}

TEST_P(ShapeChecks, RejectsInvalidLosses) {
  const TensorSpec logits = of({2, 5});
  EXPECT_REFUSED(SoftmaxCrossEntropy{}, (Specs{logits, labels(3), state(), logits, metrics()}),
                 "softmax_cross_entropy: labels must be [2], got [3]");
  EXPECT_REFUSED(SoftmaxCrossEntropy{},
                 (Specs{logits, TensorSpec{DType::kF32, {2, 4}, Layout::row_major()}, state(),
                        logits, metrics()}),
                 "labels must be [2, 5], got [2, 4]");
  EXPECT_REFUSED(
      SoftmaxCrossEntropy{},
      (Specs{logits, TensorSpec{DType::kU8, {2}, Layout::row_major()}, state(), logits, metrics()}),
      "labels must be i32 or f32, got u8");
  EXPECT_REFUSED(MeanSquaredError{}, (Specs{logits, of({2, 4}), state(), logits, metrics()}),
                 "target must be [2, 5], got [2, 4]");
}

TEST_P(ShapeChecks, RejectsInvalidLinearLosses) {
  const TensorSpec x = of({2, 3}), weight = of({5, 3}), bias = of({5});
  const auto with = [&](const TensorSpec& labels, const TensorSpec& dweight) {
    return Specs{x, weight, absent(), labels, state(), absent(), dweight, bias, metrics()};
  };
  EXPECT_REFUSED(LinearCrossEntropy{}, with(labels(3), weight),
                 "linear_cross_entropy: labels must be [2], got [3]");
  EXPECT_REFUSED(LinearCrossEntropy{}, with(of({2}), weight), "labels must be i32");
  EXPECT_REFUSED(LinearCrossEntropy{}, with(labels(2), of({5, 2})),
                 "dweight must be [5, 3], got [5, 2]");
  EXPECT_REFUSED(LinearCrossEntropy{}, with(labels(2), absent()), "dbias requires dweight");
  EXPECT_REFUSED((LinearCrossEntropy{{.class_weights = {1, 2}}}), with(labels(2), weight),
                 "2 class weights for 5 classes");
  EXPECT_REFUSED((LinearCrossEntropy{.chunk_rows = 8}), with(labels(2), weight),
                 "chunk_rows must be a multiple of 16, got 8");
}

TEST_P(ShapeChecks, RejectsInvalidInputsAndRates) {
  EXPECT_REFUSED((NormalizeInput{.scale = 1, .mean = {1, 2}, .stddev = {1}}),
                 (Specs{of({1, 3, 2, 2}), of({1, 3, 2, 2})}),
                 "got 2 means or standard deviations for 3");
  EXPECT_REFUSED(DropoutForward{.rate = 1}, (Specs{of({2, 3}), state(), of({2, 3})}),
                 "rate must be at least 0 and below 1, got 1");
}

TEST_P(ShapeChecks, RejectsInvalidUpdates) {
  const TensorSpec array = of({8}), sum{DType::kF64, {1}, Layout::row_major()};
  EXPECT_REFUSED((SumOfSquares{{{0, 4, 0, 1}, {3, 8, 0, 1}}}), (Specs{array, sum}),
                 "sum_of_squares: range [3, 8) must come after 4 and end within 8");
  EXPECT_REFUSED((SumOfSquares{{{0, 9, 0, 1}}}), (Specs{array, sum}), "range [0, 9)");
  const auto with = [&](const TensorSpec& gradients, const TensorSpec& squares,
                        const TensorSpec& scale, const std::vector<TensorSpec>& slots) {
    Specs all{array, gradients, squares, scale, absent(), state(), absent(), absent(), absent()};
    all.insert(all.end(), slots.begin(), slots.end());
    return all;
  };
  const Update sgd{SgdMomentum{}};
  EXPECT_REFUSED(Update{}, with(array, absent(), absent(), {array}),
                 "update: takes 9 tensors, got 10");
  EXPECT_REFUSED(sgd, with(array, absent(), absent(), {}), "update: takes 10 tensors, got 9");
  EXPECT_REFUSED((Update{SgdMomentum{}, {{0, 8}}}), with(of({7}), absent(), absent(), {array}),
                 "range [0, 8) cannot have gradients from 0 on of 7");
  EXPECT_REFUSED(sgd, with(array, absent(), loss_scale(), {array}),
                 "sum of squares must be [1], got [0]");
  EXPECT_REFUSED(sgd, with(array, sum, sum, {array}), "loss scale must be [16], got [1]");
  EXPECT_REFUSED((Update{.rule = SgdMomentum{}, .ranges = {}, .max_norm = 1}),
                 with(array, absent(), absent(), {array}), "sum of squares must be [1], got [0]");
  EXPECT_REFUSED(Update{Adam{}}, with(array, absent(), absent(), {absent(), array}),
                 "slot 0 must be [8], got [0]");
  EXPECT_REFUSED((Update{Lars{}, {{0, 4}, {4, 8}}}), with(array, absent(), absent(), {array}),
                 "trust ratios must be [2], got [0]");
  const TensorSpec sums{DType::kF64, {1, 2}, Layout::row_major()};
  EXPECT_REFUSED((TensorSquares{Lars{}, {{0, 4}, {4, 8}}}),
                 (Specs{array, array, absent(), absent(), absent(), state(), sums, array}),
                 "tensor_squares: sums must be [2, 2], got [1, 2]");
  EXPECT_REFUSED((TensorSquares{Lion{}, {{0, 8}}}),
                 (Specs{array, array, absent(), absent(), absent(), state(), sums, array}),
                 "tensor_squares: the rule is not layer-wise");
  EXPECT_REFUSED((TrustRatios{Lars{}, {{0, 8}}}), (Specs{sums, state(), of({3})}),
                 "trust_ratios: ratios must be [1], got [3]");
  EXPECT_REFUSED((TrustRatios{Lion{}, {{0, 8}}}), (Specs{sums, state(), of({1})}),
                 "trust_ratios: the rule is not layer-wise");
  const auto shifted = [](int64_t slot_shift) {
    return Update{SgdMomentum{}, {{.begin = 4, .end = 8, .slot_shift = slot_shift}}};
  };
  for (const int64_t slot_shift : {-8, -2, 4}) {
    EXPECT_REFUSED(shifted(slot_shift), with(array, absent(), absent(), {of({4})}),
                   "update: range [4, 8) cannot have slots from " + std::to_string(4 + slot_shift) +
                       " on of 4");
  }
}

TEST_P(ShapeChecks, RejectsInvalidLossScales) {
  const TensorSpec sum{DType::kF64, {1}, Layout::row_major()};
  EXPECT_REFUSED(ScaleLoss{}, (Specs{state(), state()}),
                 "scale_loss: loss scale must be [16], got [48]");
  EXPECT_REFUSED(ScaleLoss{}, (Specs{loss_scale(), loss_scale()}), "state must be [48], got [16]");
  EXPECT_REFUSED(AdjustLossScale{}, (Specs{absent(), loss_scale(), absent(), absent()}),
                 "adjust_loss_scale: sum of squares must be [1], got [0]");
  EXPECT_REFUSED(AdjustLossScale{.growth_steps = 0}, (Specs{sum, loss_scale(), absent(), absent()}),
                 "growth steps must be at least 1, got 0");
  EXPECT_REFUSED(AdjustLossScale{}, (Specs{sum, loss_scale(), of({3}), of({2})}),
                 "running statistics before must be [3], got [2]");
}

TEST_P(ShapeChecks, AttentionHasAPositiveScale) {
  const Specs specs{of({1, 5, 12}), absent(), absent(), of({1, 5, 4}), absent()};
  EXPECT_EQ(refusal(AttentionForward{{.scale = 0.5f}}, specs), "accepted");
  for (const float scale : {0.0f, -0.5f, std::nanf("")}) {
    EXPECT_REFUSED(AttentionForward{{.scale = scale}}, specs, "the scale must be positive");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Backends, ShapeChecks,
    testing::Values(Maker{"reference", create_reference_backend, DType::kF64},
                    Maker{"cpu", [](Device& device) { return create_cpu_backend(device); },
                          DType::kF32}),
    [](const auto& tested) { return tested.param.name; });

TEST(Reference, RejectsOtherDtypes) {
  const auto device = create_cpu_device(1);
  const auto backend = create_reference_backend(*device);
  const TensorSpec exact{DType::kF64, {3}, {}}, rough{DType::kF32, {3}, {}};
  EXPECT_THROW(backend->plan(Add{}, Specs{exact, rough, exact}), Error);
  EXPECT_THROW(backend->plan(Reorder{}, Specs{exact, TensorSpec{DType::kBF16, {3}, {}}}), Error);
  EXPECT_NO_THROW(backend->plan(Reorder{}, Specs{exact, rough}));
  const TensorSpec bytes{DType::kU8, {3}, {}};
  EXPECT_THROW(backend->plan(Reorder{}, Specs{exact, bytes}), Error);
  EXPECT_NO_THROW(backend->plan(Reorder{}, Specs{bytes, bytes}));

  const TensorSpec state{DType::kU8, {int64_t{sizeof(StepState)}}, {}};
  const auto loss = [&](DType labels, DType metrics) {
    const TensorSpec logits{DType::kF64, {2, 5}, {}};
    backend->plan(SoftmaxCrossEntropy{},
                  Specs{logits, {labels, {2}, {}}, state, absent(), {metrics, {kMetricCount}, {}}});
  };
  EXPECT_NO_THROW(loss(DType::kI32, DType::kF32));
  EXPECT_THROW(loss(DType::kI64, DType::kF32), Error);
  EXPECT_THROW(loss(DType::kI32, DType::kBF16), Error);
}

TEST(Reference, ChoosesRowMajor) {
  const auto device = create_cpu_device(1);
  const auto backend = create_reference_backend(*device);
  const TensorSpec any{DType::kF64, {1, 2, 3, 4}, Layout::any()};
  const TensorSpec last = any.with(Layout::channels_last());
  const auto add = backend->plan(Add{}, Specs{any, last, any});
  for (const TensorSpec& spec : add->specs()) EXPECT_EQ(spec, any.with(Layout::row_major()));
  const auto reorder = backend->plan(Reorder{}, Specs{last, any});
  EXPECT_EQ(reorder->specs()[0], last);
  EXPECT_EQ(reorder->specs()[1], any.with(Layout::row_major()));
}

TEST(Windows, CountsPositions) {
  EXPECT_EQ(windows(5, 3, 1, 0), 3);
  EXPECT_EQ(windows(5, 3, 2, 1), 3);
  EXPECT_EQ(windows(6, 3, 2, 0), 2);
  EXPECT_EQ(windows(5, 3, 1, 0, 2), 1);
  EXPECT_EQ(windows(2, 3, 1, 0), 0);
  EXPECT_EQ(windows(2, 3, 5, 1), 1);
}

}  // namespace
}  // namespace trireme::ops
