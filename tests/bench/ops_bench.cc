// Measures the operations of lenet, lstm, mlp and resnet18-cifar with their default batch on one
// rank and one thread. Convolutions, dense and recurrent layers report FLOP/s, the others bytes/s
// (tensors that are read and written count twice). Each update (mlp/update) comes with the cost of
// its memory traffic (mlp/stream): a pass that reads and writes the same number of arrays. To run
// both interleaved:
//   ops_bench --benchmark_filter='mlp/(update|stream)' --benchmark_repetitions=21
//             --benchmark_enable_random_interleaving=true --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/vectorized.h"
#include "ops/backend.h"
#include "ops/step_state.h"

namespace trireme {
namespace {

// A planned operation with its own memory.
class Runner {
 public:
  Runner(ops::Backend& backend, ops::Op op, const std::vector<TensorSpec>& specs)
      : op_(std::move(op)),
        plan_(backend.plan(op_, specs)),
        stream_(backend.device().create_stream(StreamKind::kCompute)) {
    for (const TensorSpec& spec : plan_->specs()) {
      Buffer& buffer = buffers_.emplace_back(backend.device().allocate(spec.bytes()));
      std::memset(buffer.data(), 0, buffer.bytes());
      if (spec.dtype == DType::kF32) {
        for (size_t i = 0; i < buffer.bytes() / 4; ++i) {
          buffer.as<float>()[i] = static_cast<float>(i % 13) * 0.1f - 0.55f;
        }
      }
      if (spec.dtype == DType::kU8 && spec.shape == Shape{int64_t{sizeof(ops::StepState)}}) {
        *buffer.as<ops::StepState>() = {
            .valid_rows = 1 << 20, .learning_rate = 1e-6f, .loss_gradient_scale = 1e-3f};
      }
      args_.push_back(ops::is_absent(spec) ? nullptr : buffer.data());
      const size_t times = arg(buffers_.size() - 1).use == ops::Use::kInOut ? 2 : 1;
      bytes_ += ops::is_absent(spec) ? 0 : static_cast<double>(times * spec.bytes());
    }
    scratch_ = backend.device().allocate(plan_->scratch_bytes());
  }

  const ops::Op& op() const { return op_; }
  const TensorSpec& spec(int arg) const { return plan_->specs()[static_cast<size_t>(arg)]; }

  void measure(benchmark::State& state) {
    for (auto _ : state) plan_->encode(*stream_, args_, scratch_.data());
    const double work = flops(op_, plan_->specs());
    state.counters[work > 0 ? "FLOP/s" : "B/s"] =
        benchmark::Counter(work > 0 ? work : bytes_, benchmark::Counter::kIsIterationInvariantRate);
    state.counters["scratch"] = static_cast<double>(plan_->scratch_bytes());
  }

 private:
  const ops::ArgInfo& arg(size_t i) const {
    return std::visit([&]<class Op>(const Op&) -> const ops::ArgInfo& { return Op::kInfo.arg(i); },
                      op_);
  }

  ops::Op op_;
  std::unique_ptr<ops::OpPlan> plan_;
  std::unique_ptr<Stream> stream_;
  std::vector<Buffer> buffers_;
  std::vector<void*> args_;
  Buffer scratch_;
  double bytes_ = 0;
};

ops::Backend& backend() {
  static const std::unique_ptr<Device> device = create_cpu_device(1);
  static const std::unique_ptr<ops::Backend> cpu = ops::create_cpu_backend(*device);
  return *cpu;
}

TensorSpec any(Shape shape) { return {DType::kF32, shape, Layout::any()}; }
TensorSpec plain(Shape shape) { return {DType::kF32, shape, Layout::row_major()}; }
const TensorSpec kState{DType::kU8, {int64_t{sizeof(ops::StepState)}}, Layout::row_major()};

template <class Make>
void add(const std::string& name, Make make) {
  benchmark::RegisterBenchmark(name.c_str(), [make](benchmark::State& state) {
    Runner(make()).measure(state);
  })->Unit(benchmark::kMillisecond);
}

struct ConvCase {
  std::string name;
  int64_t batch, in, size, out, kernel, stride, padding;
  bool first = false;
};

Runner forward(const ConvCase& c) {
  const int64_t out_size = (c.size + 2 * c.padding - c.kernel) / c.stride + 1;
  const ops::Conv2dGeometry g{.stride = {c.stride, c.stride}, .padding = {c.padding, c.padding}};
  const TensorSpec x{
      DType::kF32, {c.batch, c.in, c.size, c.size}, c.first ? Layout::row_major() : Layout::any()};
  return Runner(backend(), ops::Conv2dForward{.geometry = g},
                {x, any({c.out, c.in, c.kernel, c.kernel}), ops::absent(),
                 any({c.batch, c.out, out_size, out_size})});
}

void add_convolution(const ConvCase& c) {
  using Forward = ops::Conv2dForward;
  add(c.name + "/forward", [c] { return forward(c); });
  add(c.name + "/backward_weights", [c] {
    const Runner f = forward(c);
    return Runner(
        backend(), ops::Conv2dBackwardWeights{std::get<Forward>(f.op()).geometry},
        {f.spec(Forward::kX), f.spec(Forward::kY), f.spec(Forward::kWeight), ops::absent()});
  });
  if (c.first) return;
  add(c.name + "/backward_data", [c] {
    const Runner f = forward(c);
    return Runner(backend(), ops::Conv2dBackwardData{std::get<Forward>(f.op()).geometry},
                  {f.spec(Forward::kY), f.spec(Forward::kWeight), f.spec(Forward::kX)});
  });
}

void add_dense(const std::string& name, int64_t batch, int64_t in, int64_t out) {
  add(name + "/forward", [=] {
    return Runner(
        backend(), ops::DenseForward{},
        {plain({batch, in}), plain({out, in}), plain({out}), plain({batch, out}), ops::absent()});
  });
  add(name + "/backward_data", [=] {
    return Runner(backend(), ops::DenseBackwardData{},
                  {plain({batch, out}), plain({out, in}), plain({batch, in}), ops::absent()});
  });
  add(name + "/backward_weights", [=] {
    return Runner(backend(), ops::DenseBackwardWeights{},
                  {plain({batch, in}), plain({batch, out}), plain({out, in}), plain({out})});
  });
}

// Returns the layout that a convolution between such activations prefers.
TensorSpec activation(int64_t batch, int64_t channels, int64_t size) {
  return forward({"", batch, channels, size, channels, 3, 1, 1}).spec(ops::Conv2dForward::kY);
}

void add_batch_norm(const std::string& name, int64_t batch, int64_t channels, int64_t size,
                    bool residual) {
  add(name + "/forward", [=] {
    const TensorSpec x = activation(batch, channels, size);
    const TensorSpec c = plain({channels});
    return Runner(backend(), ops::BatchNormForward{.relu = true},
                  {x, residual ? x : ops::absent(), c, c, ops::absent(), kState, c, c, x,
                   plain({2 * channels})});
  });
  add(name + "/backward", [=] {
    const TensorSpec x = activation(batch, channels, size);
    const TensorSpec c = plain({channels});
    return Runner(backend(), ops::BatchNormBackward{.relu = true},
                  {x, x, x, c, plain({2 * channels}), ops::absent(), kState, x,
                   residual ? x : ops::absent(), c, c});
  });
}

void add_group_norm(const std::string& name, TensorSpec (*make)(int64_t, int64_t, int64_t),
                    int64_t batch, int64_t channels, int64_t size) {
  constexpr int64_t kGroups = 32;
  const TensorSpec c = plain({channels}), saved = plain({batch, kGroups, 2});
  add(name + "/forward", [=] {
    const TensorSpec x = make(batch, channels, size);
    return Runner(backend(), ops::GroupNormForward{.groups = kGroups}, {x, c, c, x, saved});
  });
  add(name + "/backward", [=] {
    const TensorSpec x = make(batch, channels, size);
    return Runner(backend(), ops::GroupNormBackward{.groups = kGroups},
                  {x, x, c, saved, kState, x, c, c});
  });
}

TensorSpec row_major_image(int64_t batch, int64_t channels, int64_t size) {
  return plain({batch, channels, size, size});
}
TensorSpec channels_last_image(int64_t batch, int64_t channels, int64_t size) {
  return {DType::kF32, {batch, channels, size, size}, Layout::channels_last()};
}
TensorSpec rows(int64_t batch, int64_t channels, int64_t) { return plain({batch, channels}); }

void add_lenet() {
  add_convolution({"lenet/conv1", 64, 1, 28, 6, 5, 1, 2, true});
  add_convolution({"lenet/conv2", 64, 6, 14, 16, 5, 1, 0});
  add_dense("lenet/fc1", 64, 400, 120);
  add_dense("lenet/fc2", 64, 120, 84);
  add_dense("lenet/fc3", 64, 84, 10);
  const auto pool_x = [] {
    return forward({"", 64, 1, 28, 6, 5, 1, 2, true}).spec(ops::Conv2dForward::kY);
  };
  add("lenet/pool1/forward", [=] {
    return Runner(backend(), ops::MaxPoolForward{},
                  {pool_x(), any({64, 6, 14, 14}), ops::unsized_workspace()});
  });
  add("lenet/pool1/backward", [=] {
    const Runner f(backend(), ops::MaxPoolForward{},
                   {pool_x(), any({64, 6, 14, 14}), ops::unsized_workspace()});
    return Runner(backend(), ops::MaxPoolBackward{},
                  {f.spec(ops::MaxPoolForward::kY), f.spec(ops::MaxPoolForward::kWorkspace),
                   f.spec(ops::MaxPoolForward::kX)});
  });
  add("lenet/pool1/reorder", [=] {
    const Runner f(backend(), ops::MaxPoolForward{},
                   {pool_x(), any({64, 6, 14, 14}), ops::unsized_workspace()});
    const TensorSpec y = f.spec(ops::MaxPoolForward::kY);
    return Runner(backend(), ops::Reorder{}, {y, y.with(Layout::channels_last())});
  });
}

void add_mlp() {
  add_dense("mlp/fc1", 256, 784, 4096);
  add_dense("mlp/fc2", 256, 4096, 4096);
  add_dense("mlp/fc3", 256, 4096, 10);
  add("mlp/relu/backward", [] {
    const TensorSpec x = plain({256, 4096});
    return Runner(backend(), ops::ActivationBackward{}, {x, x, x});
  });
  add("mlp/dropout", [] {
    const TensorSpec x = plain({256, 4096});
    return Runner(backend(), ops::DropoutForward{}, {x, kState, x});
  });
  add("mlp/loss", [] {
    return Runner(backend(), ops::SoftmaxCrossEntropy{},
                  {plain({256, 10}),
                   {DType::kI32, {256}, Layout::row_major()},
                   kState,
                   plain({256, 10}),
                   plain({ops::kMetricCount})});
  });
}

// The layers of the zoo's lstm: T steps of `batch` sequences.
void add_recurrent(const std::string& name, ops::RecurrentCell cell, DType dtype) {
  constexpr int64_t kBatch = 64, kLength = 32, kWidth = 256;
  using Forward = ops::RecurrentForward;
  const auto forward = [=] {
    const int64_t rows = ops::gates_of(cell) * kWidth;
    const auto low = [=](const Shape& shape) {
      return TensorSpec{dtype, shape, Layout::row_major()};
    };
    const TensorSpec x = low({kBatch, kLength, kWidth}), weight = low({rows, kWidth});
    return Runner(backend(), Forward{cell},
                  {x, weight, weight, low({rows}), low({rows}), ops::absent(), ops::absent(), x,
                   ops::absent(), ops::unsized_workspace()});
  };
  add(name + "/forward", forward);
  add(name + "/backward", [=] {
    const Runner f = forward();
    const TensorSpec &x = f.spec(Forward::kX), &weight = f.spec(Forward::kWeightIh);
    const TensorSpec dweight = plain(weight.shape), dbias = plain({weight.shape[0]});
    return Runner(backend(), ops::RecurrentBackward{cell},
                  {x, weight, weight, ops::absent(), ops::absent(), x, f.spec(Forward::kWorkspace),
                   x, x, dweight, dweight, dbias, dbias});
  });
}

void add_lstm() {
  add_recurrent("lstm/lstm", ops::RecurrentCell::kLstm, DType::kF32);
  add_recurrent("lstm/gru", ops::RecurrentCell::kGru, DType::kF32);
  if (!ops::cpu_computes_in(DType::kBF16)) return;
  add_recurrent("lstm/lstm_bf16", ops::RecurrentCell::kLstm, DType::kBF16);
  add_recurrent("lstm/gru_bf16", ops::RecurrentCell::kGru, DType::kBF16);
}

constexpr int64_t kParameters = 20'037'642;  // of mlp
const TensorSpec kArray = plain({kParameters});
const std::vector<ops::UpdateRange> kAll{{0, kParameters, 1e-4f, 1}};

using Vector = float __attribute__((vector_size(64)));

// Adds to several totals in turn, so that additions do not depend on each other.
constexpr int kTotals = 8;
template <int kRead>
TRIREME_VECTORIZED void stream(const Vector* const* read, std::span<Vector* const> written,
                               int64_t begin, int64_t end, Vector* totals) {
  Vector sums[kTotals] = {};
  for (int64_t i = begin; i < end; i += kTotals) {
    for (int j = 0; j < kTotals; ++j) {
      Vector sum{};
      for (int k = 0; k < kRead; ++k) sum += read[k][i + j];
      for (Vector* x : written) x[i + j] += sum;
      sums[j] += sum;
    }
  }
  for (int j = 0; j < kTotals; ++j) totals[j] += sums[j];
}

// A pass that reads some arrays and adds to others, one block at a time.
template <int kRead>
void add_stream(const std::string& name, size_t written) {
  constexpr size_t read = kRead;
  const auto run = [=](benchmark::State& state) {
    std::vector<Buffer> buffers;
    for (size_t i = 0; i < read + written; ++i) {
      buffers.push_back(backend().device().allocate(kParameters * sizeof(float)));
      std::memset(buffers.back().data(), 0, buffers.back().bytes());
    }
    std::vector<const Vector*> in;
    std::vector<Vector*> out;
    for (size_t i = 0; i < read; ++i) in.push_back(buffers[i].as<Vector>());
    for (size_t i = read; i < read + written; ++i) out.push_back(buffers[i].as<Vector>());
    Vector totals[kTotals] = {};
    constexpr int64_t kVectors = kParameters / 16, kBlock = 1024;
    for (auto _ : state) {
      for (int64_t at = 0; at + kBlock <= kVectors; at += kBlock) {
        stream<kRead>(in.data(), out, at, at + kBlock, totals);
      }
      benchmark::DoNotOptimize(totals);
    }
    state.counters["B/s"] =
        benchmark::Counter(static_cast<double>((read + 2 * written) * kParameters * sizeof(float)),
                           benchmark::Counter::kIsIterationInvariantRate);
  };
  benchmark::RegisterBenchmark(name.c_str(), run)->Unit(benchmark::kMillisecond);
}

// kNormsRead: number of arrays that the trust ratios of a layer-wise rule read.
template <size_t kNormsRead = 0>
void add_update(const std::string& name, const ops::UpdateRule& rule, bool averages = false) {
  const size_t slots = ops::slots_of(rule).size();
  add("mlp/update/" + name, [=] {
    const TensorSpec ratios = ops::is_layer_wise(rule) ? plain({1}) : ops::absent();
    std::vector<TensorSpec> specs{kArray,        kArray,        ops::absent(),
                                  ops::absent(), ops::absent(), kState,
                                  ops::absent(), ratios,        averages ? kArray : ops::absent()};
    specs.resize(specs.size() + slots, kArray);
    return Runner(backend(), ops::Update{rule, kAll, 0, {.decay = 0.999}}, specs);
  });
  add_stream<1>("mlp/stream/" + name, 1 + slots + averages);
  if constexpr (kNormsRead > 0) {
    add("mlp/update/" + name + "_tensor_squares", [=] {
      const TensorSpec sums{DType::kF64, {1, 2}, Layout::row_major()};
      std::vector<TensorSpec> specs{kArray,        kArray, ops::absent(), ops::absent(),
                                    ops::absent(), kState, sums};
      specs.resize(specs.size() + slots, kArray);
      return Runner(backend(), ops::TensorSquares{rule, kAll}, specs);
    });
    add_stream<kNormsRead>("mlp/stream/" + name + "_tensor_squares", 0);
  }
}

void add_updates() {
  add_update("sgd", ops::SgdMomentum{});
  add_update("adam", ops::Adam{});
  add_update("lion", ops::Lion{});
  add_update<2>("lars", ops::Lars{});
  add_update<4>("lamb", ops::Lamb{});
  add_update("sgd_average", ops::SgdMomentum{}, /*averages=*/true);
  add_update("adam_average", ops::Adam{}, /*averages=*/true);
  add("mlp/update/sum_of_squares", [] {
    return Runner(backend(), ops::SumOfSquares{kAll},
                  {kArray, {DType::kF64, {1}, Layout::row_major()}});
  });
  add_stream<1>("mlp/stream/sum_of_squares", 0);
}

void add_resnet18_cifar() {
  const std::string net = "resnet18-cifar/";
  add("resnet18-cifar/normalize_input", [] {
    return Runner(
        backend(),
        ops::NormalizeInput{.scale = 1 / 255.f, .mean = {.5, .5, .5}, .stddev = {1, 1, 1}},
        {{DType::kU8, {64, 3, 32, 32}, Layout::channels_last()}, any({64, 3, 32, 32})});
  });
  add_convolution({net + "conv1", 64, 3, 32, 64, 3, 1, 1, true});
  int64_t size = 32;
  for (int64_t width = 64; width <= 512; width *= 2) {
    const std::string layer = net + "layer" + std::to_string(width) + "/";
    if (width > 64) {
      add_convolution({layer + "strided", 64, width / 2, size, width, 3, 2, 1});
      add_convolution({layer + "shortcut", 64, width / 2, size, width, 1, 2, 0});
      size /= 2;
    }
    add_convolution({layer + "conv", 64, width, size, width, 3, 1, 1});
    add_batch_norm(layer + "bn_relu", 64, width, size, false);
    add_batch_norm(layer + "bn_add_relu", 64, width, size, true);
    add_group_norm(layer + "gn", activation, 64, width, size);
    add_group_norm(layer + "gn_row_major", row_major_image, 64, width, size);
    add_group_norm(layer + "gn_channels_last", channels_last_image, 64, width, size);
  }
  add(net + "global_pool/forward", [] {
    return Runner(backend(), ops::AveragePoolForward{{.kernel = {4, 4}, .stride = {4, 4}}},
                  {activation(64, 512, 4), any({64, 512, 1, 1})});
  });
  add(net + "global_pool/backward", [] {
    const Runner f(backend(), ops::AveragePoolForward{{.kernel = {4, 4}, .stride = {4, 4}}},
                   {activation(64, 512, 4), any({64, 512, 1, 1})});
    return Runner(backend(), ops::AveragePoolBackward{{.kernel = {4, 4}, .stride = {4, 4}}},
                  {f.spec(1), f.spec(0)});
  });
  add(net + "add", [] {
    const TensorSpec x = activation(64, 64, 32);
    return Runner(backend(), ops::Add{}, {x, x, x});
  });
  add_group_norm(net + "gn_rows", rows, 1024, 1024, 1);
  add_dense(net + "fc", 64, 512, 10);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  trireme::add_lenet();
  trireme::add_lstm();
  trireme::add_mlp();
  trireme::add_updates();
  trireme::add_resnet18_cifar();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
