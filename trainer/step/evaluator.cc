#include "trainer/step/evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numbers>
#include <span>

#include "comm/control.h"
#include "core/clock.h"
#include "core/fault_point.h"
#include "core/file.h"
#include "data/loader.h"
#include "ops/step_state.h"
#include "trainer/step/arrays.h"
#include "trainer/step/carried_states.h"
#include "trainer/step/skipped_samples.h"

namespace trireme::train {
namespace {

using Clock = std::chrono::steady_clock;
// How often ranks check whether any of them was asked to stop.
constexpr double kSecondsBetweenStopChecks = 0.25;

// Metrics that are computed from each sample's outputs, in addition to the loss's own sums.
class Scores {
 public:
  Scores(const data::SampleSpec& spec, int64_t outputs, bool with_details)
      : spec_(spec), outputs_(outputs) {
    if (ClassCounts::applies_to(spec, outputs)) classes_.emplace(outputs);
    if (RegressionSums::applies_to(spec, outputs)) regression_.emplace(outputs);
    if (with_details && DetailsCollector::applies_to(spec, outputs)) details_.emplace(spec);
  }

  bool any() const { return classes_ || regression_ || details_; }

  void add(const data::Batch& batch, std::span<const float> predictions) {
    if (regression_) {
      const auto* targets = reinterpret_cast<const float*>(batch.targets);
      return regression_->add(predictions, {targets, predictions.size()});
    }
    const std::vector<Classified> samples = classify(spec_, batch, predictions, outputs_);
    if (classes_) classes_->add(samples);
    if (details_) details_->add(batch, predictions, samples);
  }

  void gather(comm::Communicator& communicator, const data::Dataset& dataset, Evaluation& to) {
    if (classes_) {
      to.classes = classes_->gather(communicator);
      set_averages(to.classes, to.metrics);
    }
    if (regression_) {
      to.outputs = regression_->gather(communicator);
      set_averages(to.outputs, to.metrics);
    }
    if (details_) to.details = details_->gather(communicator, dataset);
  }

 private:
  const data::SampleSpec& spec_;
  const int64_t outputs_;
  std::optional<ClassCounts> classes_;
  std::optional<RegressionSums> regression_;
  std::optional<DetailsCollector> details_;
};

}  // namespace

struct Evaluator::State {
  State(const model::Graph& graph, ops::Backend& its_backend, comm::Communicator& its_communicator,
        const data::Dataset& its_dataset, const Predictions& what, model::Parameters its_parameters,
        model::ModelArrays arrays, std::span<std::byte> shared_activations,
        const BatchPlan& its_plan, const data::LoaderOptions& its_loading, PipelineStage its_stage,
        std::span<const model::Graph> shorter)
      : backend(its_backend),
        device(its_backend.device()),
        communicator(its_communicator),
        dataset(its_dataset),
        predicted(what),
        parameters(std::move(its_parameters)),
        plan(its_plan),
        rows(plan.micro),
        loading(its_loading),
        stage(std::move(its_stage)),
        stream(device.create_stream(StreamKind::kCompute)) {
    const model::Node& last = graph.nodes[static_cast<size_t>(graph.nodes.back().inputs[0])];
    outputs = last.signature.output.elements();
    model::CompileOptions options;
    options.batch = rows;
    options.training = false;
    options.stage = stage.stage;
    options.carry_states = true;
    options.output =
        stage.grid.is_last_stage() && Scores(dataset.spec(), outputs, /*with_details=*/true).any();
    compile(graph, options);
    for (const model::Graph& other : shorter) compile(other, options);
    size_t activation_bytes = 0;
    for (const Variant& variant : variants) {
      activation_bytes = std::max(activation_bytes, variant.program->activation_bytes());
    }
    if (activation_bytes > shared_activations.size()) {
      activations = device.allocate(activation_bytes);
      shared_activations = {activations.data(), activations.bytes()};
    }
    if (options.output)
      output = device.allocate(static_cast<size_t>(rows * outputs) * sizeof(float));
    metrics = device.allocate(sizeof host_metrics);
    step_state = device.allocate(sizeof(ops::StepState));
    arrays.gradients = metrics.data();
    for (Variant& variant : variants) {
      variant.context.emplace(*variant.program, arrays, shared_activations.data());
      if (options.output) variant.context->bind(model::Port::kOutput, output.data());
    }
    loading.reads = variants.front().program->reads_samples() || loading.max_bad_records;
    if (stage.links) {
      exchange.emplace(*stage.links, device, *stream, *variants.front().program, /*in_flight=*/1,
                       /*has_backward=*/false);
    }
    loading.global_batch = rows * communicator.size() / stage.grid.stages;
    loading.capacity = rows;
    if (plan.has_streams) {
      loading.order.streams = loading.global_batch = plan.global;
      loading.capacity = plan.capacity;
    }
    carried = std::make_unique<CarriedStates>(*variants.front().program, device, loading.capacity);
    states_before = device.allocate(carried->current().bytes());
    if (device.kind() == DeviceKind::kCpu || !loading.reads) return;
    inputs = device.allocate(static_cast<size_t>(rows) * graph.input.input.bytes());
    targets = device.allocate(static_cast<size_t>(rows) * graph.input.target.bytes());
  }

  // A program for samples of a length.
  struct Variant {
    TensorSpec input;
    std::unique_ptr<const model::Program> program;
    std::optional<model::Context> context = {};
  };

  void compile(const model::Graph& graph, const model::CompileOptions& options) {
    variants.push_back(
        {graph.input.input, model::Program::compile(graph, backend, options, parameters)});
  }

  // Returns the program for samples of this length, see data::Batch::length.
  Variant& variant_for(int64_t length) {
    if (length == 0) return variants.front();
    const auto found = std::ranges::find_if(
        variants, [&](const Variant& variant) { return variant.input.shape[0] == length; });
    if (found != variants.end()) return *found;
    throw Error(fmt::format("there is no program for samples of {} tokens", length));
  }

  void add(const data::Batch& batch, std::array<double, ops::kMetricCount>& sums) {
    carried->begin(batch, *stream);
    copy_array(device, states_before, carried->current(), *stream);
    device.fill_zero(metrics.data(), sizeof host_metrics, *stream);
    for (int64_t first = 0; first == 0 || first < batch.rows; first += rows) {
      compute(batch, first);
    }
    device.copy(host_metrics.data(), metrics.data(), sizeof host_metrics, *stream);
    stream->synchronize();
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(host_metrics[i]);
  }

  // Computes the rows from `first` on. There is one such pass unless the plan has streams.
  void compute(const data::Batch& batch, int64_t first) {
    ops::StepState state;
    state.first_sample = batch.first_row + first;
    state.valid_rows = static_cast<int32_t>(std::min(batch.rows - first, rows));
    device.copy(step_state.data(), &state, sizeof state, *stream);
    Variant& variant = variant_for(batch.length);
    const size_t input_bytes = variant.input.bytes();
    const size_t target_bytes = dataset.spec().target.bytes();
    const std::byte* input = nullptr;
    const std::byte* target = nullptr;
    if (loading.reads) {
      input = batch.inputs + static_cast<size_t>(first) * input_bytes;
      target = batch.targets + static_cast<size_t>(first) * target_bytes;
    }
    // The CPU reads the batch in place.
    if (inputs.data()) {
      device.copy(inputs.data(), input, static_cast<size_t>(rows) * input_bytes, *stream);
      device.copy(targets.data(), target, targets.bytes(), *stream);
      input = inputs.data();
      target = targets.data();
    }
    variant.context->bind_batch(input, target, step_state.as<ops::StepState>());
    carried->bind(*variant.context, states_before, first);
    forward(*variant.context);
  }

  // Receives nothing ahead, so that an evaluation may be stopped after any batch.
  void forward(model::Context& context) {
    if (!exchange) return context.forward(*stream);
    const PipelineAction pass{.forward = true, .micro_batch = 0};
    exchange->begin(1);
    exchange->before(pass, context);
    context.forward(*stream);
    exchange->after(pass);
    exchange->end();
  }

  // Returns the outputs, [batch.rows, outputs], of the batch that was added last.
  std::span<const float> predictions(const data::Batch& batch) {
    const auto count = static_cast<size_t>(batch.rows * outputs);
    if (device.kind() == DeviceKind::kCpu) return {output.as<float>(), count};
    host_output.resize(count);
    device.copy(host_output.data(), output.data(), count * sizeof(float), *stream);
    stream->synchronize();
    return host_output;
  }

  // Checks whether any rank was asked to stop. All ranks must check after the same batches, so the
  // number of batches until the next check is computed from the same sum.
  struct StopCheck {
    bool stop = false;
    int64_t next_check_after = 1;  // batches
  };
  StopCheck check_stop(bool stop_requested, double seconds_per_batch) {
    std::array<double, 2> sums = {stop_requested ? 1.0 : 0.0, seconds_per_batch};
    comm::sum(communicator, sums);
    const double batches =
        kSecondsBetweenStopChecks * communicator.size() / std::max(1e-9, sums[1]);
    return {sums[0] > 0, static_cast<int64_t>(std::clamp(batches, 1.0, 1e6))};
  }

  Evaluation run(const std::function<bool()>& stop_requested, bool with_details) {
    const auto start = Clock::now();
    communicator.ledger().enter(comm::Phase::kEvaluation);
    data::Loader loader(dataset, device, loading);
    loader.start(0, 0);
    std::array<double, ops::kMetricCount> sums{};
    Scores scores(dataset.spec(), outputs, with_details);
    Evaluation result;
    const int64_t batches = loader.batches_per_epoch();
    int64_t next_check = 1;
    for (int64_t i = 0; i < batches; ++i) {
      if (i == next_check) {
        const StopCheck check =
            check_stop(stop_requested(), seconds_since(start) / static_cast<double>(i));
        result.stopped = check.stop;
        if (check.stop) break;
        next_check += check.next_check_after;
      }
      fault_point("evaluation", i);
      const data::Batch& batch = loader.next();
      communicator.ledger().set_detail(fmt::format("batch {} of {}", i + 1, batches));
      add(batch, sums);
      if (output.data()) scores.add(batch, predictions(batch));
    }
    if (!result.stopped) scores.gather(communicator, dataset, result);
    comm::sum(communicator, sums);
    result.samples = static_cast<int64_t>(sums[ops::kMetricSamples]);
    if (!result.stopped && result.samples < dataset.size()) {
      result.bad.count = dataset.size() - result.samples;
      const bool reports = stage.grid.stage == 0;  // all stages read the same samples
      result.bad.first = gather_skip_reasons(
          communicator, reports ? loader.bad_records().first : std::vector<std::string>());
    }
    if (!result.stopped && result.samples == 0) {  // on all ranks, since it is a sum
      throw comm::AgreedError(
          fmt::format("{}: has no good samples, only {} bad ones; the first: {}",
                      dataset.description(), result.bad.count,
                      result.bad.first.empty() ? "" : result.bad.first.front()),
          ExitCode::kBadData, 0);
    }
    require_few_bad_samples(dataset, result.bad.count, loading.max_bad_records,
                            result.bad.first.empty() ? "" : result.bad.first.front());
    set_loss_metrics(sums, result.metrics);
    result.seconds = seconds_since(start);
    return result;
  }

  // Sets the metrics that follow from the sums of the loss. They have no value if no label counts.
  void set_loss_metrics(const std::array<double, ops::kMetricCount>& sums,
                        EvaluationMetrics& to) const {
    if (const double weight = sums[ops::kMetricWeight]; weight > 0) {
      to.objective = sums[ops::kMetricLoss] / weight;
    }
    if (const double labels = sums[ops::kMetricLabels]; labels > 0) {
      const double loss = sums[ops::kMetricPlainLoss] / labels;
      to.loss = loss;
      to.accuracy = sums[ops::kMetricTop1] / labels;
      to.top5 = sums[ops::kMetricTop5] / labels;
      to.perplexity = std::exp(loss);
      to.bits_per_byte = loss / std::numbers::ln2 / dataset.spec().bytes_per_token;
    }
    for (const MetricInfo& metric : kEvaluationMetrics) {
      if (!metric.is_for(predicted)) (to.*metric.value).reset();
    }
  }

  ops::Backend& backend;
  Device& device;
  comm::Communicator& communicator;
  const data::Dataset& dataset;
  const Predictions predicted;
  model::Parameters parameters;
  const BatchPlan plan;
  const int64_t rows;  // of a pass
  data::LoaderOptions loading;
  PipelineStage stage;
  std::unique_ptr<Stream> stream;
  std::vector<Variant> variants;  // the first is for whole samples
  Buffer activations;
  std::optional<StageExchange> exchange;
  std::unique_ptr<CarriedStates> carried;
  Buffer states_before;
  int64_t outputs = 0;  // per sample
  Buffer output;
  std::vector<float> host_output;
  Buffer metrics;
  Buffer step_state;
  Buffer inputs, targets;
  std::array<float, ops::kMetricCount> host_metrics{};
};

Evaluator::Evaluator(const model::Graph& graph, ops::Backend& backend,
                     comm::Communicator& communicator, const data::Dataset& dataset,
                     const Predictions& predictions, model::Parameters parameters,
                     const model::ModelArrays& arrays, std::span<std::byte> activations,
                     const BatchPlan& plan, const data::LoaderOptions& loading,
                     const PipelineStage& stage, std::span<const model::Graph> shorter)
    : state_(std::make_unique<State>(graph, backend, communicator, dataset, predictions,
                                     std::move(parameters), arrays, activations, plan, loading,
                                     stage, shorter)) {}
Evaluator::~Evaluator() = default;

Evaluation Evaluator::run(const std::function<bool()>& stop_requested, bool with_details) {
  return state_->run(stop_requested, with_details);
}

}  // namespace trireme::train
