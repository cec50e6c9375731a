#include "ops/shapes.h"

#include <fmt/format.h>

#include "core/error.h"
#include "ops/step_state.h"

namespace trireme {
namespace {

// The tensors of one operation, by what they are called in its header.
class Checker {
 public:
  Checker(const Op& op, std::span<const TensorSpec> specs) : op_(op), specs_(specs) {}

  const Shape& shape(int arg) const { return specs_[static_cast<size_t>(arg)].shape; }
  DType dtype(int arg) const { return specs_[static_cast<size_t>(arg)].dtype; }
  bool present(int arg) const { return !is_absent(specs_[static_cast<size_t>(arg)]); }

  void count(size_t wanted) const {
    if (specs_.size() != wanted) {
      refuse(fmt::format("takes {} tensors, got {}", wanted, specs_.size()));
    }
  }
  void rank(int arg, int wanted, const char* name) const {
    if (shape(arg).rank() != wanted) {
      refuse(fmt::format("{} must have {} extents, got {}", name, wanted, shape(arg).to_string()));
    }
  }
  void is(int arg, const Shape& wanted, const char* name) const {
    if (!(shape(arg) == wanted)) {
      refuse(
          fmt::format("{} must be {}, got {}", name, wanted.to_string(), shape(arg).to_string()));
    }
  }
  void is_if_present(int arg, const Shape& wanted, const char* name) const {
    if (present(arg)) is(arg, wanted, name);
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(fmt::format("{}: {}", name_of(op_), why));
  }

 private:
  const Op& op_;
  std::span<const TensorSpec> specs_;
};

const Shape kMetricsShape{kMetricCount};
const Shape kStateShape{int64_t{sizeof(StepState)}};
const Shape kLossScaleShape{int64_t{sizeof(LossScale)}};

void fused(const Checker& c, Activation activation) {
  if (activation == Activation::kNone || derivative_uses_output(activation)) return;
  c.refuse(fmt::format("cannot end in {}, whose derivative needs its input", name_of(activation)));
}

void windows_fit(const Checker& c, const Shape& x, const Shape& y) {
  if (y[2] < 1 || y[3] < 1) c.refuse(fmt::format("no window fits into x {}", x.to_string()));
}

void positive(const Checker& c, const std::array<int64_t, 2>& values, int64_t least,
              const char* name) {
  for (int64_t value : values) {
    if (value < least) c.refuse(fmt::format("{} must be at least {}, got {}", name, least, value));
  }
}

void convolution(const Checker& c, const Conv2dGeometry& g, int x, int weight, int y) {
  c.rank(x, 4, "x");
  c.rank(weight, 4, "weight");
  positive(c, g.stride, 1, "stride");
  positive(c, g.dilation, 1, "dilation");
  positive(c, g.padding, 0, "padding");
  const Shape& in = c.shape(x);
  const Shape& w = c.shape(weight);
  if (g.groups < 1 || w[1] * g.groups != in[1] || w[0] % g.groups != 0) {
    c.refuse(fmt::format("weight {} in {} groups does not fit x {}", w.to_string(), g.groups,
                         in.to_string()));
  }
  const Shape out{in[0], w[0], windows(in[2], w[2], g.stride[0], g.padding[0], g.dilation[0]),
                  windows(in[3], w[3], g.stride[1], g.padding[1], g.dilation[1])};
  windows_fit(c, in, out);
  c.is(y, out, "y");
}

void pooling(const Checker& c, const PoolGeometry& g, int x, int y) {
  c.rank(x, 4, "x");
  positive(c, g.kernel, 1, "kernel");
  positive(c, g.stride, 1, "stride");
  positive(c, g.padding, 0, "padding");
  for (size_t i = 0; i < 2; ++i) {
    // Otherwise a window could lie in the padding alone and have no value.
    if (g.padding[i] >= g.kernel[i]) {
      c.refuse(
          fmt::format("padding {} must be less than the kernel {}", g.padding[i], g.kernel[i]));
    }
  }
  const Shape& in = c.shape(x);
  const Shape out{in[0], in[1], windows(in[2], g.kernel[0], g.stride[0], g.padding[0]),
                  windows(in[3], g.kernel[1], g.stride[1], g.padding[1])};
  windows_fit(c, in, out);
  c.is(y, out, "y");
}

void dense(const Checker& c, int x, int weight, int y) {
  c.rank(x, 2, "x");
  c.rank(weight, 2, "weight");
  if (c.shape(weight)[1] != c.shape(x)[1]) {
    c.refuse(fmt::format("weight {} does not fit x {}", c.shape(weight).to_string(),
                         c.shape(x).to_string()));
  }
  c.is(y, {c.shape(x)[0], c.shape(weight)[0]}, "y");
}

// Joined along axis 1.
void joined(const Checker& c, int whole, int first, int parts) {
  if (parts < 1) c.refuse("needs at least one part");
  if (c.shape(first).rank() < 2) {
    c.refuse(fmt::format("a part must be [N, C, ...], got {}", c.shape(first).to_string()));
  }
  Shape total = c.shape(first);
  for (int i = 1; i < parts; ++i) total[1] += c.shape(first + i)[1];
  c.is(whole, total, "the whole");
  for (int i = 1; i < parts; ++i) {
    Shape part = c.shape(first);
    part[1] = c.shape(first + i)[1];
    c.is(first + i, part, "a part");
  }
}

struct Check {
  const Checker& c;

  void operator()(const Conv2dForward& op) const {
    using O = Conv2dForward;
    fused(c, op.activation);
    convolution(c, op.geometry, O::kX, O::kWeight, O::kY);
    c.is_if_present(O::kBias, {c.shape(O::kWeight)[0]}, "bias");
  }
  void operator()(const Conv2dBackwardData& op) const {
    using O = Conv2dBackwardData;
    convolution(c, op.geometry, O::kDx, O::kWeight, O::kDy);
  }
  void operator()(const Conv2dBackwardWeights& op) const {
    using O = Conv2dBackwardWeights;
    convolution(c, op.geometry, O::kX, O::kDweight, O::kDy);
    c.is_if_present(O::kDbias, {c.shape(O::kDweight)[0]}, "dbias");
  }
  void operator()(const DenseForward& op) const {
    using O = DenseForward;
    fused(c, op.activation);
    dense(c, O::kX, O::kWeight, O::kY);
    c.is_if_present(O::kBias, {c.shape(O::kWeight)[0]}, "bias");
  }
  void operator()(const DenseBackwardData&) const {
    using O = DenseBackwardData;
    dense(c, O::kDx, O::kWeight, O::kDy);
  }
  void operator()(const DenseBackwardWeights&) const {
    using O = DenseBackwardWeights;
    dense(c, O::kX, O::kDweight, O::kDy);
    c.is_if_present(O::kDbias, {c.shape(O::kDweight)[0]}, "dbias");
  }
  void operator()(const ActivationForward&) const {
    c.is(ActivationForward::kY, c.shape(ActivationForward::kX), "y");
  }
  void operator()(const ActivationBackward&) const {
    using O = ActivationBackward;
    c.is(O::kDy, c.shape(O::kSaved), "dy");
    c.is(O::kDx, c.shape(O::kSaved), "dx");
  }
  void operator()(const BatchNormStatistics&) const {
    using O = BatchNormStatistics;
    c.is(O::kSums, {2 * channels(O::kX) + 1}, "sums");
  }
  void operator()(const BatchNormForward&) const {
    using O = BatchNormForward;
    const int64_t n = channels(O::kX);
    c.is_if_present(O::kResidual, c.shape(O::kX), "residual");
    c.is(O::kGamma, {n}, "gamma");
    c.is(O::kBeta, {n}, "beta");
    c.is_if_present(O::kSums, {2 * n + 1}, "sums");
    c.is_if_present(O::kRunningMean, {n}, "running mean");
    c.is_if_present(O::kRunningVar, {n}, "running variance");
    c.is(O::kY, c.shape(O::kX), "y");
    c.is(O::kSaved, {2 * n}, "saved");
  }
  void operator()(const BatchNormInference&) const {
    using O = BatchNormInference;
    const int64_t n = channels(O::kX);
    c.is_if_present(O::kResidual, c.shape(O::kX), "residual");
    c.is(O::kGamma, {n}, "gamma");
    c.is_if_present(O::kBeta, {n}, "beta");
    c.is_if_present(O::kRunningMean, {n}, "running mean");
    c.is(O::kRunningVar, {n}, "running variance");
    c.is(O::kY, c.shape(O::kX), "y");
  }
  void operator()(const BatchNormBackwardSums& op) const {
    using O = BatchNormBackwardSums;
    const int64_t n = channels(O::kX);
    if (op.relu) c.is(O::kY, c.shape(O::kX), "y");
    c.is(O::kDy, c.shape(O::kX), "dy");
    c.is(O::kSaved, {2 * n}, "saved");
    c.is(O::kSums, {2 * n + 1}, "sums");
  }
  void operator()(const BatchNormBackward& op) const {
    using O = BatchNormBackward;
    const int64_t n = channels(O::kX);
    if (op.relu) c.is(O::kY, c.shape(O::kX), "y");
    c.is(O::kDy, c.shape(O::kX), "dy");
    c.is(O::kGamma, {n}, "gamma");
    c.is(O::kSaved, {2 * n}, "saved");
    c.is_if_present(O::kSums, {2 * n + 1}, "sums");
    c.is(O::kDx, c.shape(O::kX), "dx");
    c.is_if_present(O::kDresidual, c.shape(O::kX), "dresidual");
    c.is(O::kDgamma, {n}, "dgamma");
    c.is(O::kDbeta, {n}, "dbeta");
  }
  void operator()(const LayerNormForward&) const {
    using O = LayerNormForward;
    c.rank(O::kX, 2, "x");
    c.is(O::kGamma, {c.shape(O::kX)[1]}, "gamma");
    c.is(O::kBeta, {c.shape(O::kX)[1]}, "beta");
    c.is(O::kY, c.shape(O::kX), "y");
    c.is_if_present(O::kSaved, {c.shape(O::kX)[0], 2}, "saved");
  }
  void operator()(const LayerNormBackward&) const {
    using O = LayerNormBackward;
    c.rank(O::kX, 2, "x");
    const Shape features{c.shape(O::kX)[1]};
    c.is(O::kDy, c.shape(O::kX), "dy");
    c.is(O::kGamma, features, "gamma");
    c.is(O::kSaved, {c.shape(O::kX)[0], 2}, "saved");
    c.is(O::kDx, c.shape(O::kX), "dx");
    c.is(O::kDgamma, features, "dgamma");
    c.is(O::kDbeta, features, "dbeta");
  }
  void operator()(const MaxPoolForward& op) const {
    pooling(c, op.geometry, MaxPoolForward::kX, MaxPoolForward::kY);
  }
  void operator()(const MaxPoolBackward& op) const {
    pooling(c, op.geometry, MaxPoolBackward::kDx, MaxPoolBackward::kDy);
  }
  void operator()(const AveragePoolForward& op) const {
    pooling(c, op.geometry, AveragePoolForward::kX, AveragePoolForward::kY);
  }
  void operator()(const AveragePoolBackward& op) const {
    pooling(c, op.geometry, AveragePoolBackward::kDx, AveragePoolBackward::kDy);
  }
  void operator()(const DropoutForward& op) const {
    rate(op.rate);
    c.is(DropoutForward::kY, c.shape(DropoutForward::kX), "y");
  }
  void operator()(const DropoutBackward& op) const {
    rate(op.rate);
    c.is(DropoutBackward::kDx, c.shape(DropoutBackward::kDy), "dx");
  }
  void operator()(const Add&) const {
    c.is(Add::kB, c.shape(Add::kA), "b");
    c.is(Add::kY, c.shape(Add::kA), "y");
  }
  void operator()(const Concat& op) const { joined(c, Concat::kY, Concat::kFirstInput, op.inputs); }
  void operator()(const Split& op) const { joined(c, Split::kX, Split::kFirstOutput, op.outputs); }
  void operator()(const Reorder&) const { c.is(Reorder::kTo, c.shape(Reorder::kFrom), "to"); }
  void operator()(const NormalizeInput& op) const {
    using O = NormalizeInput;
    c.is(O::kY, c.shape(O::kX), "y");
    const auto n = static_cast<size_t>(channels(O::kX));
    for (size_t size : {op.mean.size(), op.deviation.size()}) {
      if (size != 1 && size != n) {
        c.refuse(fmt::format("got {} means or deviations for {} channels; give one or as many",
                             size, n));
      }
    }
  }
  void operator()(const SoftmaxCrossEntropy&) const {
    using O = SoftmaxCrossEntropy;
    c.rank(O::kLogits, 2, "logits");
    const DType labels = c.dtype(O::kLabels);
    if (labels == DType::kI32) {
      c.is(O::kLabels, {c.shape(O::kLogits)[0]}, "labels");
    } else if (labels == DType::kF32) {
      c.is(O::kLabels, c.shape(O::kLogits), "labels as probabilities");
    } else {
      c.refuse(fmt::format("labels must be i32 or f32, got {}", name_of(labels)));
    }
    c.is_if_present(O::kDlogits, c.shape(O::kLogits), "dlogits");
    c.is(O::kMetrics, kMetricsShape, "metrics");
  }
  void operator()(const MeanSquaredError&) const {
    using O = MeanSquaredError;
    c.rank(O::kPrediction, 2, "prediction");
    c.is(O::kTarget, c.shape(O::kPrediction), "target");
    c.is_if_present(O::kDprediction, c.shape(O::kPrediction), "dprediction");
    c.is(O::kMetrics, kMetricsShape, "metrics");
  }
  void operator()(const SumOfSquares& op) const {
    c.is(SumOfSquares::kSum, {1}, "sum");
    ranges(op.ranges, c.shape(SumOfSquares::kX));
    ranges(op.watched, c.shape(SumOfSquares::kX));
  }
  void operator()(const SgdUpdate& op) const {
    using O = SgdUpdate;
    arrays(op, {O::kGradients}, {O::kVelocity, O::kLowPrecision});
    if (c.present(O::kVelocity) != (op.momentum != 0)) {
      c.refuse("needs a velocity with momentum, and none without");
    }
  }
  void operator()(const AdamUpdate& op) const {
    using O = AdamUpdate;
    arrays(op, {O::kGradients, O::kMoment1, O::kMoment2}, {O::kLowPrecision});
  }
  void operator()(const ScaleLoss&) const {
    c.is(ScaleLoss::kScale, kLossScaleShape, "the loss scale");
    c.is(ScaleLoss::kState, kStateShape, "the state");
  }
  void operator()(const AdjustLossScale& op) const {
    if (op.growth_steps < 1) {
      c.refuse(fmt::format("growth steps must be at least 1, got {}", op.growth_steps));
    }
    c.is(AdjustLossScale::kSquares, {1}, "the sum of squares");
    c.is(AdjustLossScale::kScale, kLossScaleShape, "the loss scale");
  }

 private:
  int64_t channels(int x) const {
    if (c.shape(x).rank() < 2) {
      c.refuse(fmt::format("x must be [N, C, ...], got {}", c.shape(x).to_string()));
    }
    return c.shape(x)[1];
  }
  void rate(float value) const {
    if (!(value >= 0 && value < 1)) {
      c.refuse(fmt::format("rate must be at least 0 and below 1, got {}", value));
    }
  }
  // kParameters comes first in every update.
  template <class O>
  void arrays(const O& op, std::initializer_list<int> needed,
              std::initializer_list<int> optional) const {
    for (int array : needed) c.is(array, c.shape(0), "an array");
    for (int array : optional) c.is_if_present(array, c.shape(0), "an array");
    c.is_if_present(O::kLossScale, kLossScaleShape, "the loss scale");
    if (op.max_norm > 0 || c.present(O::kLossScale)) c.is(O::kSquares, {1}, "the sum of squares");
    ranges(op.ranges, c.shape(0));
  }
  void ranges(const std::vector<UpdateRange>& all, const Shape& array) const {
    int64_t end = 0;
    for (const UpdateRange& range : all) {
      if (range.begin < end || range.end < range.begin || range.end > array.elements()) {
        c.refuse(fmt::format("range [{}, {}) must come after {} and end within {}", range.begin,
                             range.end, end, array.elements()));
      }
      end = range.end;
    }
  }
};

size_t arg_count(const Op& op) {
  return std::visit(
      [](const auto& chosen) -> size_t {
        using T = std::decay_t<decltype(chosen)>;
        if constexpr (std::is_same_v<T, Concat>) {
          return static_cast<size_t>(chosen.inputs) + 1;
        } else if constexpr (std::is_same_v<T, Split>) {
          return static_cast<size_t>(chosen.outputs) + 1;
        } else {
          return static_cast<size_t>(T::kArgs);
        }
      },
      op);
}

}  // namespace

void check_shapes(const Op& op, std::span<const TensorSpec> specs) {
  const Checker checker(op, specs);
  checker.count(arg_count(op));
  std::visit(Check{checker}, op);
}

}  // namespace trireme
