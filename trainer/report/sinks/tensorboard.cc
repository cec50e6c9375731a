#include "trainer/report/sinks/tensorboard.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "core/clock.h"
#include "data/images/codec.h"
#include "data/sample_images.h"
#include "trainer/report/sinks/histogram.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
namespace tb = tensorboard;

constexpr size_t kMaxRanks = 64;  // up to this number, each rank gets its own curve
// Tags that are also metrics of the hparams plugin.
constexpr const char* kLoss = "train/loss";
constexpr const char* kSpeed = "speed/samples_per_second";

std::string tag_of(const MetricInfo& metric) { return fmt::format("eval/{}", metric.name); }

tb::Event event_at(std::chrono::system_clock::time_point when, int64_t step) {
  tb::Event event;
  event.set_wall_time(unix_seconds(when));
  event.set_step(step);
  return event;
}

void set(google::protobuf::Value& value, const Hyperparameter& parameter) {
  std::visit(Overloaded{[&](bool x) { value.set_bool_value(x); },
                        [&](double x) { value.set_number_value(x); },
                        [&](const std::string& x) { value.set_string_value(x); }},
             parameter);
}

tb::Experiment::HParam::DataType type_of(const Hyperparameter& parameter) {
  return std::visit(
      Overloaded{[](bool) { return tb::Experiment::HParam::DATA_TYPE_BOOL; },
                 [](double) { return tb::Experiment::HParam::DATA_TYPE_FLOAT64; },
                 [](const std::string&) { return tb::Experiment::HParam::DATA_TYPE_STRING; }},
      parameter);
}

// Indents each line by four spaces, which is a code block in Markdown.
std::string as_code(const std::string& text) {
  std::string code = "    ";
  for (const char c : text) {
    code += c;
    if (c == '\n') code += "    ";
  }
  return code;
}

void fill(const Histogram& from, tb::HistogramProto& to) {
  to.set_min(from.min);
  to.set_max(from.max);
  to.set_num(static_cast<double>(from.count));
  to.set_sum(from.sum);
  to.set_sum_squares(from.sum_of_squares);
  for (const double limit : from.limits) to.add_bucket_limit(limit);
  for (const int64_t count : from.counts) to.add_bucket(static_cast<double>(count));
}

}  // namespace

class TensorBoardSink::Summaries {
 public:
  Summaries(Time when, int64_t step) : event(event_at(when, step)) {}

  void scalar(const std::string& tag, double value) {
    add(tag).set_simple_value(static_cast<float>(value));
  }
  void histogram(const std::string& tag, std::span<const float> values) {
    const Histogram histogram = histogram_of(values);
    if (histogram.count > 0) fill(histogram, *add(tag).mutable_histo());
  }
  void image(const std::string& tag, const std::string& label, const data::ImageView& view) {
    tb::Summary::Value& value = add(tag);
    const std::vector<uint8_t> png = data::encode_png(view);
    tb::Summary::Image& image = *value.mutable_image();
    image.set_height(view.height);
    image.set_width(view.width);
    image.set_colorspace(view.channels);
    image.set_encoded_image_string(png.data(), png.size());
    if (label.empty()) return;
    // TensorBoard no longer infers the plugin from the value once there is metadata.
    value.mutable_metadata()->mutable_plugin_data()->set_plugin_name("images");
    value.mutable_metadata()->set_display_name(label);
  }
  void text(const std::string& tag, const std::string& markdown) {
    tb::Tensor& tensor = plugin(tag, "text", {});
    tensor.set_dtype(tb::Tensor::DT_STRING);
    tensor.mutable_shape()->add_dim()->set_size(1);
    tensor.add_string_val(markdown);
  }
  void hparams(const std::string& what, const tb::HParamsPluginData& data) {
    tb::Tensor& tensor = plugin("_hparams_/" + what, "hparams", data.SerializeAsString());
    tensor.set_dtype(tb::Tensor::DT_FLOAT);  // the value itself is not used
    tensor.mutable_shape();
    tensor.add_float_val(0);
  }

  tb::Event event;

 private:
  tb::Summary::Value& add(const std::string& tag) {
    tb::Summary::Value& value = *event.mutable_summary()->add_value();
    value.set_tag(tag);
    return value;
  }
  tb::Tensor& plugin(const std::string& tag, const std::string& name, const std::string& content) {
    tb::Summary::Value& value = add(tag);
    tb::SummaryMetadata& metadata = *value.mutable_metadata();
    metadata.set_data_class(tb::SummaryMetadata::DATA_CLASS_TENSOR);
    metadata.mutable_plugin_data()->set_plugin_name(name);
    metadata.mutable_plugin_data()->set_content(content);
    return *value.mutable_tensor();
  }
};

TensorBoardSink::TensorBoardSink(fs::path folder, int64_t keep_through_step)
    : folder_(std::move(folder)), keep_through_step_(keep_through_step) {}

bool TensorBoardSink::wants(const MetricsRecord& record) const {
  return is_one_of<StartRecord, StepRecord, EvaluationRecord, RanksRecord, HistogramsRecord,
                   SamplesRecord, EndRecord>(record);
}

void TensorBoardSink::open() {
  if (keep_through_step_ == 0) fs::remove_all(folder_);
  fs::create_directories(folder_);
  file_ = std::make_unique<EventFile>(folder_);
  const Time now = std::chrono::system_clock::now();
  tb::Event version = event_at(now, 0);
  version.set_file_version("brain.Event:2");
  file_->add(version);
  if (keep_through_step_ == 0) return;
  tb::Event start = event_at(now, keep_through_step_ + 1);
  start.mutable_session_log()->set_status(tb::SessionLog::START);
  file_->add(start);
}

void TensorBoardSink::add(const Summaries& summaries) { file_->add(summaries.event); }

void TensorBoardSink::write(const MetricsEvent& event) {
  if (is_one_of<EvaluationRecord, EndRecord>(event.record)) write_pending();
  std::visit(
      Overloaded{[](const CheckpointRecord&) {}, [](const NotFiniteRecord&) {},
                 [](const LossSpikeRecord&) {}, [](const ConsoleText&) {}, [](const LogLine&) {},
                 [&](const StepRecord& record) {
                   pending_ = {event.when, record};
                   if (may_write_step(event.when)) write_pending();
                 },
                 [&](const auto& record) { write(event.when, record); }},
      event.record);
}

bool TensorBoardSink::may_write_step(Time now) {
  const double since = unix_seconds(now) - unix_seconds(std::exchange(allowed_at_, now));
  steps_allowed_ = std::min(kStepBurst, steps_allowed_ + kStepsPerSecond * std::max(0.0, since));
  if (steps_allowed_ < 1) return false;
  --steps_allowed_;
  return true;
}

void TensorBoardSink::write_pending() {
  if (const auto step = std::exchange(pending_, std::nullopt)) write(step->when, step->record);
}

void TensorBoardSink::write(Time when, const StartRecord& record) {
  Summaries summaries(when, record.step);
  summaries.text("configuration", as_code(record.config));
  tb::HParamsPluginData experiment;
  for (const auto& [name, value] : record.hyperparameters) {
    tb::Experiment::HParam& hparam = *experiment.mutable_experiment()->add_hparam();
    hparam.set_name(name);
    hparam.set_type(type_of(value));
  }
  std::vector<std::string> metrics;
  for (const MetricInfo& metric : kEvaluationMetrics) {
    if (metric.is_for(record.predictions)) metrics.push_back(tag_of(metric));
  }
  metrics.insert(metrics.end(), {kLoss, kSpeed});
  for (const std::string& tag : metrics) {
    experiment.mutable_experiment()->add_metric()->mutable_name()->set_tag(tag);
  }
  experiment.mutable_experiment()->set_time_created(unix_seconds(when));
  summaries.hparams("experiment", experiment);

  tb::HParamsPluginData session;
  for (const auto& [name, value] : record.hyperparameters) {
    auto& hparam = *session.mutable_session_start()->add_hparam();
    hparam.set_key(name);
    set(*hparam.mutable_value(), value);
  }
  session.mutable_session_start()->set_start_time(unix_seconds(when));
  summaries.hparams("session_start_info", session);
  add(summaries);
}

void TensorBoardSink::write(Time when, const StepRecord& record) {
  Summaries summaries(when, record.step);
  summaries.scalar(kLoss, record.train_loss);
  summaries.scalar("train/learning_rate", record.learning_rate);
  summaries.scalar(kSpeed, record.samples_per_second);
  if (record.tokens_per_second) {
    summaries.scalar("speed/tokens_per_second", *record.tokens_per_second);
  }
  if (record.model_flops_utilization) {
    summaries.scalar("speed/model_flops_utilization", *record.model_flops_utilization);
  }
  if (record.padding_share) summaries.scalar("speed/padding_share", *record.padding_share);
  summaries.scalar("step_ms/whole", record.step_ms);
  summaries.scalar("step_ms/data_wait", record.data_wait_ms);
  summaries.scalar("step_ms/exposed_communication", record.exposed_comm_ms);
  summaries.scalar("step_ms/forward", record.forward_ms);
  summaries.scalar("step_ms/backward", record.backward_ms);
  summaries.scalar("step_ms/update", record.update_ms);
  if (record.idle_ms) summaries.scalar("step_ms/idle", *record.idle_ms);
  if (record.loss_scale) summaries.scalar("train/loss_scale", *record.loss_scale);
  if (record.skipped_steps > 0) {
    summaries.scalar("train/skipped_steps", static_cast<double>(record.skipped_steps));
  }
  if (record.load) {
    summaries.scalar("gpu/load_percent", record.load->utilization_percent);
    summaries.scalar("gpu/memory_bytes", record.load->memory_used_bytes);
    summaries.scalar("gpu/power_watts", record.load->power_watts);
  }
  add(summaries);
}

void TensorBoardSink::write(Time when, const EvaluationRecord& record) {
  Summaries summaries(when, record.step);
  for (const MetricInfo& metric : kEvaluationMetrics) {
    if (const auto& value = record.metrics.*metric.value) summaries.scalar(tag_of(metric), *value);
  }
  add(summaries);
}

void TensorBoardSink::write(Time when, const RanksRecord& record) {
  Summaries summaries(when, record.step);
  if (record.lag_ms.size() > kMaxRanks) {
    summaries.scalar("rank_lag_ms/largest", *std::ranges::max_element(record.lag_ms));
  } else {
    for (size_t rank = 0; rank < record.lag_ms.size(); ++rank) {
      summaries.scalar(fmt::format("rank_lag_ms/{}", rank), record.lag_ms[rank]);
    }
  }
  for (size_t stage = 0; stage < record.stage_utilization.size(); ++stage) {
    summaries.scalar(fmt::format("stage_utilization/{}", stage), record.stage_utilization[stage]);
  }
  add(summaries);
}

void TensorBoardSink::write(Time when, const HistogramsRecord& record) {
  // Writes one event per tensor, so that the size of an event does not grow with the network.
  for (const HistogramsRecord::Tensor& tensor : record.tensors) {
    Summaries summaries(when, record.step);
    summaries.histogram("weights/" + tensor.name, tensor.values);
    summaries.histogram("gradients/" + tensor.name, tensor.gradients);
    add(summaries);
  }
}

void TensorBoardSink::write(Time when, const SamplesRecord& record) {
  Summaries summaries(when, record.step);
  const std::vector<data::Image> images = data::images_of(record.spec, record.inputs);
  for (size_t i = 0; i < images.size(); ++i) {
    summaries.image(fmt::format("samples/{:02}", i),
                    i < record.labels.size() ? record.labels[i] : "", images[i].view());
  }
  add(summaries);
}

// A stopped run is expected to be resumed, so its session stays open.
void TensorBoardSink::write(Time when, const EndRecord& record) {
  if (record.status != "done") return;
  tb::HParamsPluginData session;
  session.mutable_session_end()->set_status(tb::SessionEnd::STATUS_SUCCESS);
  session.mutable_session_end()->set_end_time(unix_seconds(when));
  Summaries summaries(when, record.step);
  summaries.hparams("session_end_info", session);
  add(summaries);
}

}  // namespace trireme::train
