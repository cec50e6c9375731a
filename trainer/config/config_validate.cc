#include "trainer/config/config_validate.h"

#include <fmt/format.h>
#include <google/protobuf/message.h>
#include <google/protobuf/reflection.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/field_options.pb.h"
#include "core/text.h"
#include "trainer/config/device.h"
#include "trainer/config/monitor.h"

namespace trireme::train {
namespace {

constexpr int64_t kMaxBatch = int64_t{1} << 48;  // so that sums with it do not overflow
constexpr int kMaxStages = 1024;
constexpr double kMaxSeconds = 1e9;  // fits into 64 bits in nanoseconds

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Returns the values of a field: none unless it is of type float or double.
std::vector<double> numbers_in(const Message& message, const FieldDescriptor* field) {
  const auto* reflection = message.GetReflection();
  const auto type = field->cpp_type();
  if (type == FieldDescriptor::CPPTYPE_FLOAT && field->is_repeated()) {
    const auto values = reflection->GetRepeatedFieldRef<float>(message, field);
    return {values.begin(), values.end()};
  }
  if (type == FieldDescriptor::CPPTYPE_DOUBLE && field->is_repeated()) {
    const auto values = reflection->GetRepeatedFieldRef<double>(message, field);
    return {values.begin(), values.end()};
  }
  if (type == FieldDescriptor::CPPTYPE_FLOAT) return {reflection->GetFloat(message, field)};
  if (type == FieldDescriptor::CPPTYPE_DOUBLE) return {reflection->GetDouble(message, field)};
  return {};
}

class Validator {
 public:
  explicit Validator(const Config& config) : config_(config), run_(config.run) {}

  void run() const {
    limits("", run_);
    model_and_data();
    batch();
    train();
    parallel();
    optimizer();
    schedule();
    checkpoint();
    buckets();
    checks();
    watchdog();
    metrics();
  }

 private:
  [[noreturn]] void fail(const std::string& path, const std::string& message) const {
    throw ConfigError(config_.where(path), message);
  }
  template <class T>
  void at_least(const std::string& path, T value, T min) const {
    if (!(value >= min)) fail(path, fmt::format("must be at least {}, got {}", min, value));
  }
  template <class T>
  void at_most(const std::string& path, T value, T max) const {
    if (value > max) fail(path, fmt::format("must be at most {}, got {}", max, value));
  }
  // Checks (limits) of all set fields, and that CPUs do not take their values for 0. Defaults are
  // within their limits.
  void limits(const std::string& path, const Message& message) const {
    std::vector<const FieldDescriptor*> fields;
    message.GetReflection()->ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      const std::string name = path.empty() ? field->name() : path + "." + field->name();
      if (field->message_type()) {
        limits_within(name, message, field);
        continue;
      }
      for (double value : numbers_in(message, field)) {
        not_subnormal(name, value);
        if (!field->options().HasExtension(trireme::limits)) continue;
        limit(name, field->options().GetExtension(trireme::limits), value);
      }
    }
  }
  void not_subnormal(const std::string& path, double value) const {
    constexpr double kSmallest = std::numeric_limits<float>::min();
    if (value == 0 || !(std::abs(value) < kSmallest)) return;
    fail(path, fmt::format(
                   "{:.4g} is closer to 0 than {:.4g}, the smallest normal FP32 number; CPUs would "
                   "take it for 0",
                   value, kSmallest));
  }
  void limits_within(const std::string& path, const Message& message,
                     const FieldDescriptor* field) const {
    const auto* reflection = message.GetReflection();
    if (!field->is_repeated()) return limits(path, reflection->GetMessage(message, field));
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
      limits(fmt::format("{}[{}]", path, i), reflection->GetRepeatedMessage(message, field, i));
    }
  }
  void limit(const std::string& path, Limits::Rule rule, double value) const {
    const bool finite = std::isfinite(value);
    if (finite) at_most(path, value, double{std::numeric_limits<float>::max()});
    switch (rule) {
      case Limits::NOT_NEGATIVE:
        if (finite && value >= 0) return;
        return fail(path, fmt::format("must be a finite number >= 0, got {}", value));
      case Limits::POSITIVE:
        if (finite && value > 0) return;
        return fail(path, fmt::format("must be a finite number > 0, got {}", value));
      case Limits::FROM_0_TO_1:
        if (value >= 0 && value < 1) return;
        return fail(path, fmt::format("must be in [0, 1), got {}", value));
    }
  }

  void one_of(const std::string& path, const std::string& value,
              const std::vector<std::string>& choices) const {
    if (std::find(choices.begin(), choices.end(), value) != choices.end()) return;
    fail(path, fmt::format("'{}' is not one of {}{}", value, fmt::join(choices, ", "),
                           did_you_mean(value, choices)));
  }

  void buckets() const {
    const BucketConfig& buckets = run_.buckets();
    if (buckets.precision() == TF32) {
      fail("buckets.precision", "TF32 is not a storage format; use FP32, BF16 or FP16");
    }
  }

  void checks() const {
    const CheckConfig& checks = run_.checks();
    at_least<int64_t>("checks.parameter_checksum_every_steps",
                      checks.parameter_checksum_every_steps(), 0);
    at_least<int64_t>("checks.max_skipped", checks.max_skipped(), 1);
  }

  void watchdog() const {
    const WatchdogConfig& watchdog = run_.watchdog();
    at_most("watchdog.timeout_seconds", watchdog.timeout_seconds(), kMaxSeconds);
    at_most("watchdog.first_timeout_seconds", watchdog.first_timeout_seconds(), kMaxSeconds);
  }

  void metrics() const {
    const MetricsConfig& metrics = run_.metrics();
    if (metrics.port() < 0 || metrics.port() > 65535) {
      fail("metrics.port", fmt::format("{} is not in [0, 65535]", metrics.port()));
    }
    if (metrics.address().empty()) {
      fail("metrics.address", "is empty; use 0.0.0.0 to listen on every network interface");
    }
    at_least<int64_t>("metrics.histograms_every_epochs", metrics.histograms_every_epochs(), 0);
    at_least("metrics.images", metrics.images(), 0);
  }

  void model_and_data() const {
    if (run_.model().kind_case() == ModelConfig::KIND_NOT_SET) {
      fail("model", "has no network; set model.zoo.name, model.network or model.onnx");
    }
    if (!run_.has_data()) fail("data", "is missing: set the samples to train on");
    const DataConfig& data = run_.data();
    if (data.holdout_stratified() && (!data.has_holdout() || data.has_text())) {
      fail("data.holdout_stratified", data.has_text()
                                          ? "is for samples with class labels; of a text, "
                                            "data.holdout holds out the end"
                                          : "needs data.holdout, the fraction to hold out");
    }
    const ModelConfig& model = run_.model();
    if (model.has_zoo()) class_weights("model.zoo", model.zoo());
    for (int i = 0; i < model.network().layer_size(); ++i) {
      class_weights(fmt::format("model.network.layer[{}].softmax_cross_entropy", i),
                    model.network().layer(i).softmax_cross_entropy());
    }
  }

  void batch() const {
    if (!run_.batch().has_global())
      fail("batch.global", "is missing: set the number of samples per update over all ranks");
    at_least<int64_t>("batch.global", run_.batch().global(), 1);
    at_most<int64_t>("batch.global", run_.batch().global(), kMaxBatch);
    const int64_t micro = run_.batch().micro();
    if (run_.batch().has_micro() && micro != kLargestMicro && micro < 1) {
      fail("batch.micro",
           fmt::format("must be at least 1, or -1 for the largest that fits, got {}", micro));
    }
    if (run_.memory().has_limit_bytes()) {
      at_least<int64_t>("memory.limit_bytes", run_.memory().limit_bytes(), 1);
    }
  }

  void train() const {
    const TrainConfig& train = run_.train();
    if (!train.has_epochs() && !train.has_max_steps()) {
      fail("train.epochs", "is missing: set train.epochs or train.max_steps");
    }
    if (train.has_epochs()) at_least<int64_t>("train.epochs", train.epochs(), 1);
    if (train.has_max_steps()) at_least<int64_t>("train.max_steps", train.max_steps(), 0);
    at_least("train.threads", train.threads(), 0);
    at_most("train.threads", train.threads(), kMaxThreads);
    at_least<int64_t>("train.eval_every_epochs", train.eval_every_epochs(), 0);
    at_least<int64_t>("train.eval_every_steps", train.eval_every_steps(), 0);
    at_least<int64_t>("train.log_every_steps", train.log_every_steps(), 1);
    one_of("train.device", train.device(), {"auto", "cpu", "cuda"});
    one_of("train.transport", train.transport(), {"auto", "nccl", "mpi"});
    if (train.has_early_stopping()) early_stopping(train.early_stopping());
  }

  void parallel() const {
    const ParallelConfig& parallel = run_.parallel();
    at_least("parallel.stages", parallel.stages(), 0);
    at_most("parallel.stages", parallel.stages(), kMaxStages);
    if (!parallel.cut_after().empty() && parallel.stages() == 0) {
      fail("parallel.cut_after", "requires a number of parallel.stages, not 0");
    }
    if (!parallel.cut_after().empty() && parallel.cut_after_size() != parallel.stages() - 1) {
      fail(
          "parallel.cut_after",
          fmt::format("cuts the network into {0} stages, but parallel.stages is {1}; set it to {0}",
                      parallel.cut_after_size() + 1, parallel.stages()));
    }
    if (parallel.stages() > 1 && parallel.shard() == ParallelConfig::GRADIENTS) {
      fail("parallel.shard", "GRADIENTS cannot be combined with parallel.stages; use OPTIMIZER");
    }
    if (!run_.data().has_length_buckets()) return;
    if (parallel.stages() > 1) {
      fail("parallel.stages", "cannot be combined with data.length_buckets");
    }
    if (parallel.shard() == ParallelConfig::GRADIENTS) {
      fail("parallel.shard",
           "GRADIENTS cannot be combined with data.length_buckets; use OPTIMIZER");
    }
  }

  void early_stopping(const EarlyStoppingConfig& stopping) const {
    const std::string path = "train.early_stopping";
    one_of(path + ".monitor", stopping.monitor(), metric_names());
    at_least<int64_t>(path + ".patience", stopping.patience(), 1);
    const TrainConfig& train = run_.train();
    if (train.eval_every_epochs() == 0 && train.eval_every_steps() == 0) {
      fail(path, "requires evaluations: set train.eval_every_epochs or train.eval_every_steps");
    }
    if (!run_.checkpoint().keep_best()) {
      fail(path, "uses the best checkpoint of the run; remove checkpoint.keep_best: false");
    }
  }

  template <class Loss>
  void class_weights(const std::string& path, const Loss& loss) const {
    if (loss.balanced_class_weights() && !loss.class_weights().empty()) {
      fail(path + ".balanced_class_weights",
           "computes class_weights, which is set too; remove one of them");
    }
  }

  void optimizer() const {
    const OptimizerConfig& optimizer = run_.optimizer();
    if (optimizer.sgd().nesterov() && optimizer.sgd().momentum() == 0) {
      fail("optimizer.sgd.nesterov", "requires optimizer.sgd.momentum > 0");
    }
    if (optimizer.lars().nesterov() && optimizer.lars().momentum() == 0) {
      fail("optimizer.lars.nesterov", "requires optimizer.lars.momentum > 0");
    }
    if (optimizer.has_ema() && !optimizer.ema().has_decay()) {
      fail("optimizer.ema.decay",
           "is missing: set it to 0.999, for example; 0 disables the average");
    }
    for (int i = 0; i < optimizer.group_size(); ++i) {
      if (optimizer.group(i).parameters().empty()) {
        fail(fmt::format("optimizer.group[{}].parameters", i),
             "is missing: set a regular expression that matches names of parameters");
      }
    }
  }

  void schedule() const {
    const ScheduleConfig& schedule = run_.schedule();
    if (!schedule.has_learning_rate()) fail("schedule.learning_rate", "is missing");
    if (schedule.has_step()) length("schedule.step", schedule.step());
    if (schedule.has_multi_step()) multi_step(schedule.multi_step());
    if (schedule.has_warmup()) length("schedule.warmup", schedule.warmup());
  }

  template <class Schedule>
  void length(const std::string& path, const Schedule& schedule) const {
    if (schedule.length_case() == Schedule::LENGTH_NOT_SET)
      fail(path, "has no length: set steps or epochs");
    if (schedule.has_steps()) at_least<int64_t>(path + ".steps", schedule.steps(), 1);
  }

  void multi_step(const MultiStepSchedule& schedule) const {
    const std::string path = "schedule.multi_step";
    if ((schedule.steps_size() == 0) == (schedule.epochs_size() == 0)) {
      fail(path, "requires milestones either in steps or in epochs");
    }
    if (!std::is_sorted(schedule.steps().begin(), schedule.steps().end())) {
      fail(path + ".steps", "milestones must be in ascending order");
    }
    if (!std::is_sorted(schedule.epochs().begin(), schedule.epochs().end())) {
      fail(path + ".epochs", "milestones must be in ascending order");
    }
  }

  void checkpoint() const {
    const CheckpointConfig& checkpoint = run_.checkpoint();
    at_least<int64_t>("checkpoint.every_steps", checkpoint.every_steps(), 0);
    at_least<int64_t>("checkpoint.every_epochs", checkpoint.every_epochs(), 0);
    at_least<int64_t>("checkpoint.keep", checkpoint.keep(), 1);
    at_most("checkpoint.timeout_seconds", checkpoint.timeout_seconds(), kMaxSeconds);
    at_least<int64_t>("buckets.first_bytes", run_.buckets().first_bytes(), 1);
    at_least<int64_t>("buckets.bytes", run_.buckets().bytes(), 1);
    at_least<int64_t>("buckets.last_bytes", run_.buckets().last_bytes(), 1);
  }

  const Config& config_;
  const RunConfig& run_;
};

}  // namespace

void validate(const Config& config) { Validator(config).run(); }

}  // namespace trireme::train
