#include <limits>
#include <memory>
#include <numeric>
#include <type_traits>

#include "ops/choose_layouts.h"
#include "ops/cuda/context.h"
#include "ops/cuda/pack.h"
#include "ops/cuda/plans.h"
#include "ops/cuda/reduce.h"
#include "ops/cuda/upload.h"
#include "ops/function_op.h"
#include "ops/loss.h"
#include "ops/loss_rows.h"
#include "ops/step_state.h"

namespace trireme::ops::cuda {
namespace {

// The contribution of a row to the metrics.
struct RowResult {
  double loss;
  double plain_loss;  // without label smoothing and class weights
  int32_t top1, top5;
  double weight = 1;
  int32_t labels = 1;  // 0 if the label is ignored
};

template <int N, class T>
__device__ void clear_row(T* row, int64_t columns) {
  each_pack<N>(columns, [&](int64_t at) { store(row + at, Pack<T, N>{}); });
}

// Launched with one block.
__global__ void __launch_bounds__(kMaxThreads)
    add_metrics_kernel(const RowResult* results, LossRows rows, const StepState* state,
                       float* metrics) {
  const int64_t valid = rows.valid(*state);
  double loss = 0, plain_loss = 0, weight = 0;
  int64_t top1 = 0, top5 = 0, labels = 0;
  for (int64_t row = threadIdx.x; row < valid; row += blockDim.x) {
    loss += results[row].loss;
    plain_loss += results[row].plain_loss;
    weight += results[row].weight;
    top1 += results[row].top1;
    top5 += results[row].top5;
    labels += results[row].labels;
  }
  loss = row_reduce(loss, Plus());
  plain_loss = row_reduce(plain_loss, Plus());
  weight = row_reduce(weight, Plus());
  top1 = row_reduce(top1, Plus());
  top5 = row_reduce(top5, Plus());
  labels = row_reduce(labels, Plus());
  if (threadIdx.x != 0) return;
  metrics[kMetricLoss] += static_cast<float>(loss);
  metrics[kMetricTop1] += static_cast<float>(top1);
  metrics[kMetricTop5] += static_cast<float>(top5);
  metrics[kMetricSamples] += static_cast<float>(rows.valid_samples(*state));
  metrics[kMetricWeight] += static_cast<float>(weight);
  metrics[kMetricLabels] += static_cast<float>(labels);
  metrics[kMetricPlainLoss] += static_cast<float>(plain_loss);
}

// Returns the label of a row, or the class with the largest probability (the first one of equals).
// All threads of the row must call it.
template <int N>
__device__ int64_t label_of(const int32_t* label, int64_t /*classes*/) {
  return *label;
}
template <int N>
__device__ int64_t label_of(const float* probabilities, int64_t classes) {
  // The bit patterns of nonnegative floats have the same order as the floats.
  uint64_t best = 0;
  const auto larger = [](uint64_t a, uint64_t b) { return a > b ? a : b; };
  each_pack<N>(classes, [&](int64_t at) {
    const Pack<float, N> values = load<N>(probabilities + at);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float value = values.values[i] > 0 ? values.values[i] : 0.0f;
      const uint32_t earlier = ~static_cast<uint32_t>(at + i);
      best = larger(best, uint64_t{__float_as_uint(value)} << 32 | earlier);
    }
  });
  return static_cast<uint32_t>(~row_reduce(best, larger));
}

__device__ bool is_ignored(const int32_t* label, int32_t ignore_index) {
  return *label == kIgnoredLabel || *label == ignore_index;
}
__device__ bool is_ignored(const float*, int32_t) { return false; }

// Returns the probabilities of N classes.
template <int N>
__device__ Pack<float, N> target_probabilities(const int32_t*, int64_t label, int64_t at) {
  Pack<float, N> values;
#pragma unroll
  for (int i = 0; i < N; ++i) values.values[i] = at + i == label ? 1.0f : 0.0f;
  return values;
}
template <int N>
__device__ Pack<float, N> target_probabilities(const float* probabilities, int64_t, int64_t at) {
  return load<N>(probabilities + at);
}

// The weights of the classes.
struct ClassWeights {
  const float* values;  // null means 1 for all
  double mean;

  template <int N>
  __device__ Pack<float, N> at(int64_t first) const {
    if (values) return load<N>(values + first);
    Pack<float, N> ones;
#pragma unroll
    for (int i = 0; i < N; ++i) ones.values[i] = 1;
    return ones;
  }
};

// One warp or block per row, so that the row stays in its cache between passes. Labels are one
// class index per row or one probability per class. A label that is neither ignored nor a class
// index makes all results of its row NaN. dlogits may be the logits.
template <class T, int N, class Label>
__global__ void __launch_bounds__(kMaxRowThreads)
    cross_entropy_kernel(const T* logits, const Label* labels, const StepState* state,
                         LossRows rows, int64_t classes, float smoothing, int32_t ignore_index,
                         ClassWeights weights, T* dlogits, RowResult* results) {
  constexpr bool kSoft = std::is_same_v<Label, float>;
  const int64_t row = row_of_thread();
  if (row >= rows.count) return;
  logits += row * classes;
  labels += row * (kSoft ? classes : 1);
  if (dlogits) dlogits += row * classes;
  if (row >= rows.valid(*state) || is_ignored(labels, ignore_index)) {
    if (threadIdx.x == 0)
      results[row] = {.loss = 0, .plain_loss = 0, .top1 = 0, .top5 = 0, .weight = 0, .labels = 0};
    if (dlogits) clear_row<N>(dlogits, classes);
    return;
  }
  const int64_t label = label_of<N>(labels, classes);
  const bool is_class = label >= 0 && label < classes;
  const float own = is_class ? to_float(logits[label]) : std::numeric_limits<float>::quiet_NaN();

  const float weight = !kSoft && weights.values && is_class ? weights.values[label] : 1.0f;

  float largest = -std::numeric_limits<float>::infinity();
  double sum = 0;                                      // sum of w * logit
  double expected = kSoft ? 0 : double{weight} * own;  // sum of w * p * logit
  double plain = kSoft ? 0 : double{own};              // sum of p * logit
  double wanted_sum = kSoft ? 0 : double{weight};      // sum of w * p
  int32_t ahead = 0;  // classes ranked before the label; labels have 32 bits
  each_pack<N>(classes, [&](int64_t at) {
    const Pack<float, N> values = to_float(load<N>(logits + at));
    const Pack<float, N> by_class = weights.at<N>(at);
    float of_pack = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float value = values.values[i];
      largest = Max()(largest, value);
      of_pack += by_class.values[i] * value;
      ahead += value > own || (value == own && at + i < label);
    }
    sum += of_pack;
    if constexpr (kSoft) {
      const Pack<float, N> probabilities = load<N>(labels + at);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const double probability = double{probabilities.values[i]};
        const double part = double{by_class.values[i]} * probability;
        wanted_sum += part;
        expected += part * double{values.values[i]};
        plain += probability * double{values.values[i]};
      }
    }
  });
  largest = row_reduce(largest, Max());
  sum = row_reduce(sum, Plus());
  if constexpr (kSoft) {
    expected = row_reduce(expected, Plus());
    plain = row_reduce(plain, Plus());
    wanted_sum = row_reduce(wanted_sum, Plus());
  }
  // The sum of the target w * t; probabilities are assumed to sum to 1.
  const double total = weights.values ? (1 - smoothing) * wanted_sum + smoothing * weights.mean : 1;
  ahead = row_reduce(ahead, Plus());

  float sum_exp = 0;
  each_pack<N>(classes, [&](int64_t at) {
    const Pack<float, N> values = to_float(load<N>(logits + at));
#pragma unroll
    for (int i = 0; i < N; ++i) sum_exp += expf(values.values[i] - largest);
  });
  sum_exp = row_reduce(sum_exp, Plus());

  if (threadIdx.x == 0) {
    const double log_sum = largest + log(static_cast<double>(sum_exp));
    const double mean = sum / static_cast<double>(classes);
    const double loss = total * log_sum - (1 - smoothing) * expected - smoothing * mean;
    const bool ranks = loss == loss;  // rows with NaN logits count as incorrect
    results[row] = {.loss = loss,
                    .plain_loss = log_sum - plain - 0 * mean,  // NaN if a logit is not finite
                    .top1 = ranks && ahead == 0,
                    .top5 = ranks && ahead < 5,
                    .weight = weight};
  }
  if (!dlogits) return;
  const float scale = is_class ? state->loss_gradient_scale : own;
  const float factor = static_cast<float>(total) / sum_exp;
  const float everywhere = smoothing / static_cast<float>(classes);
  each_pack<N>(classes, [&](int64_t at) {
    Pack<float, N> values = to_float(load<N>(logits + at));
    const Pack<float, N> probabilities = target_probabilities<N>(labels, label, at);
    const Pack<float, N> by_class = weights.at<N>(at);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float target =
          by_class.values[i] * ((1 - smoothing) * probabilities.values[i] + everywhere);
      values.values[i] = scale * (expf(values.values[i] - largest) * factor - target);
    }
    store(dlogits + at, from_float<T>(values));
  });
}

// dprediction may be the prediction.
template <class T, int N>
__global__ void __launch_bounds__(kMaxRowThreads)
    squared_error_kernel(const T* prediction, const float* target, const StepState* state,
                         LossRows rows, int64_t features, T* dprediction, RowResult* results) {
  const int64_t row = row_of_thread();
  if (row >= rows.count) return;
  prediction += row * features;
  target += row * features;
  if (dprediction) dprediction += row * features;
  if (row >= rows.valid(*state)) {
    if (dprediction) clear_row<N>(dprediction, features);
    return;
  }
  const float factor = 2 * state->loss_gradient_scale / static_cast<float>(features);
  double sum = 0;
  each_pack<N>(features, [&](int64_t at) {
    Pack<float, N> errors = to_float(load<N>(prediction + at));
    const Pack<float, N> wanted = load<N>(target + at);
    float of_pack = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float error = errors.values[i] - wanted.values[i];
      of_pack += error * error;
      errors.values[i] = factor * error;
    }
    sum += of_pack;
    if (dprediction) store(dprediction + at, from_float<T>(errors));
  });
  sum = row_reduce(sum, Plus());
  const double loss = sum / static_cast<double>(features);
  if (threadIdx.x == 0) results[row] = {.loss = loss, .plain_loss = loss, .top1 = 0, .top5 = 0};
}

void add_metrics(const char* name, Stream& stream, const RowResult* results, const LossRows& rows,
                 const StepState* state, float* metrics) {
  trireme::cuda::launch(name, add_metrics_kernel,
                        {.blocks = dim3(1), .threads = block_for(rows.count, kMaxThreads)}, stream,
                        results, rows, state, metrics);
}

}  // namespace

Plan plan(const SoftmaxCrossEntropy& op, const ContextPtr& context, Specs given) {
  using Op = SoftmaxCrossEntropy;
  const LossRows rows{given[Op::kLogits].shape[0], op.labels_per_sample, op.first_row};
  const int64_t classes = given[Op::kLogits].shape[1];
  std::shared_ptr<const Buffer> table;
  ClassWeights weights{nullptr, 1};
  if (!op.class_weights.empty()) {
    table = std::make_shared<const Buffer>(upload(context->device, op.class_weights));
    weights = {table->as<float>(),
               std::accumulate(op.class_weights.begin(), op.class_weights.end(), 0.0) /
                   static_cast<double>(classes)};
  }
  const float smoothing = op.label_smoothing;
  const auto with_labels = [&]<class T, int N, class Label>(T, Size<N>, Label) -> Plan {
    const trireme::cuda::Grid grid = row_grid(rows.count, classes / N);
    const auto work = [rows, classes, grid, smoothing, ignore_index = op.ignore_index, weights,
                       table](Stream& stream, Args args, void* scratch) {
      auto* results = static_cast<RowResult*>(scratch);
      const auto* state = pointer<StepState>(args, Op::kState);
      trireme::cuda::launch("softmax_cross_entropy", cross_entropy_kernel<T, N, Label>, grid,
                            stream, pointer<T>(args, Op::kLogits),
                            pointer<Label>(args, Op::kLabels), state, rows, classes, smoothing,
                            ignore_index, weights, pointer<T>(args, Op::kDlogits), results);
      add_metrics("softmax_cross_entropy", stream, results, rows, state,
                  pointer<float>(args, Op::kMetrics));
    };
    return function_op(in_row_major(given), work,
                       static_cast<size_t>(rows.count) * sizeof(RowResult));
  };
  const bool soft = given[Op::kLabels].dtype == DType::kF32;
  return with_pack(given[Op::kLogits].dtype, classes, [&]<class T, int N>(T, Size<N> size) -> Plan {
    return soft ? with_labels(T(), size, float()) : with_labels(T(), size, int32_t());
  });
}

Plan plan(const MeanSquaredError&, const ContextPtr&, Specs given) {
  using Op = MeanSquaredError;
  const LossRows rows{given[Op::kPrediction].shape[0]};
  const int64_t features = given[Op::kPrediction].shape[1];
  return with_pack(given[Op::kPrediction].dtype, features, [&]<class T, int N>(T, Size<N>) -> Plan {
    const trireme::cuda::Grid grid = row_grid(rows.count, features / N);
    const auto work = [=](Stream& stream, Args args, void* scratch) {
      auto* results = static_cast<RowResult*>(scratch);
      const auto* state = pointer<StepState>(args, Op::kState);
      trireme::cuda::launch("mean_squared_error", squared_error_kernel<T, N>, grid, stream,
                            pointer<T>(args, Op::kPrediction), pointer<float>(args, Op::kTarget),
                            state, rows, features, pointer<T>(args, Op::kDprediction), results);
      add_metrics("mean_squared_error", stream, results, rows, state,
                  pointer<float>(args, Op::kMetrics));
    };
    return function_op(in_row_major(given), work,
                       static_cast<size_t>(rows.count) * sizeof(RowResult));
  });
}

}  // namespace trireme::ops::cuda
