#include "trainer/report/sinks/prometheus.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <sys/socket.h>

#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/descriptor.h"
#include "core/error.h"
#include "core/text.h"
#include "trainer/base/process.h"

namespace trireme::train {
namespace {

using Time = std::chrono::system_clock::time_point;

// Connects to an IPv4 address of this host, and does nothing else.
void connect_once(const std::string& address, int port) {
  const Descriptor connection(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) return;
  (void)!connect(connection.number(), reinterpret_cast<const sockaddr*>(&to), sizeof to);
}

// Whoever changes several values locks the mutex, so that no scrape sees only some of them.
struct LockedRegistry : prometheus::Collectable {
  std::vector<prometheus::MetricFamily> Collect() const override {
    const std::lock_guard lock(mutex);
    return registry.Collect();
  }

  mutable std::mutex mutex;
  prometheus::Registry registry;
};

}  // namespace

// Metrics are registered with their first value, so that unknown values are absent rather than 0.
struct PrometheusSink::State {
  State(std::string its_address, int its_port, std::shared_ptr<const DropCounts> counts)
      : address(std::move(its_address)), port(its_port), dropped(std::move(counts)) {}

  // The server notices its end at the next connection, or else only after two seconds.
  ~State() {
    if (!exposer) return;
    const std::jthread waker([this](const std::stop_token& stopped) {
      while (!stopped.stop_requested()) {
        connect_once(address, port);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
    exposer.reset();
  }

  void gauge(const std::string& name, const std::string& help, double value,
             const prometheus::Labels& labels = {}) {
    auto [found, is_new] = gauges.try_emplace({name, labels});
    if (is_new) {
      found->second =
          &prometheus::BuildGauge().Name(name).Help(help).Register(values->registry).Add(labels);
    }
    found->second->Set(value);
  }

  // Raises the counter to `value`; a counter never decreases.
  void counter(const char* name, const char* help, double value,
               const prometheus::Labels& labels = {}) {
    auto [found, is_new] = counters.try_emplace({name, labels});
    if (is_new) {
      found->second =
          &prometheus::BuildCounter().Name(name).Help(help).Register(values->registry).Add(labels);
    }
    if (value > found->second->Value()) found->second->Increment(value - found->second->Value());
  }

  void write(Time, const StartRecord& r) {
    gauge("trireme_run_info", "Always 1; the labels describe the run.", 1,
          {{"model", r.model},
           {"precision", r.precision},
           {"ranks", fmt::format("{}", r.ranks)},
           {"version", r.version},
           {"run_dir", printable(r.run_dir)}});
    at(r.step, r.epoch);
    gauge("trireme_planned_steps", "Planned number of updates of the run.",
          static_cast<double>(r.total_steps));
    bad_records(r.bad_records);
  }

  void write(Time when, const StepRecord& r) {
    at(r.step, r.epoch);
    gauge("trireme_train_loss", "Mean loss of the latest step.", r.train_loss);
    gauge("trireme_learning_rate", "Learning rate of the latest step.", r.learning_rate);
    counter("trireme_samples_total", "Samples trained on since this process started.",
            static_cast<double>(r.samples_total));
    gauge("trireme_samples_per_second", "Samples trained on per second, over all ranks.",
          r.samples_per_second);
    if (r.tokens_per_second) {
      gauge("trireme_tokens_per_second", "Tokens trained on per second, over all ranks.",
            *r.tokens_per_second);
    }
    const auto time = [&](const char* name, const char* help, double ms) {
      gauge(name, help, ms / 1e3);
    };
    time("trireme_step_seconds", "Mean time per step.", r.step_ms);
    time("trireme_data_wait_seconds", "Time per step that rank 0 waited for data.", r.data_wait_ms);
    time("trireme_exposed_communication_seconds",
         "Time per step that rank 0 waited for allreduces after its backward pass.",
         r.exposed_comm_ms);
    time("trireme_forward_seconds", "Time per step in the forward pass.", r.forward_ms);
    time("trireme_backward_seconds", "Time per step in the backward pass.", r.backward_ms);
    time("trireme_update_seconds", "Time per step in the parameter update.", r.update_ms);
    if (r.idle_ms) {
      time("trireme_idle_seconds", "Time per step that rank 0 waited for other pipeline stages.",
           *r.idle_ms);
    }
    gauge("trireme_last_step_timestamp_seconds", "When the latest step ended.", unix_seconds(when));
    counter("trireme_skipped_steps_total", "Updates skipped since the run began.",
            static_cast<double>(r.skipped_steps));
    if (r.bad_records) bad_records(*r.bad_records);
    if (r.loss_scale) gauge("trireme_loss_scale", "Loss scale of FP16 training.", *r.loss_scale);
    if (r.load) write(*r.load);
  }

  void write(const DeviceLoad& load) {
    gauge("trireme_gpu_memory_bytes", "Memory in use on the GPU of rank 0.",
          load.memory_used_bytes);
    gauge("trireme_gpu_utilization_ratio", "Fraction of the time that the GPU of rank 0 was busy.",
          load.utilization_percent / 100);
    gauge("trireme_gpu_power_watts", "Power draw of the GPU of rank 0.", load.power_watts);
  }

  void write(Time, const EvaluationRecord& r) {
    for (const MetricInfo& metric : kEvaluationMetrics) {
      const std::optional<double>& value = r.metrics.*metric.value;
      if (!value) continue;
      gauge(fmt::format("trireme_eval_{}", metric.name),
            fmt::format("{} of the latest evaluation{}.", metric.description,
                        metric.is_ratio ? ", a ratio" : ""),
            *value);
    }
  }

  void write(Time when, const CheckpointRecord& r) {
    gauge("trireme_checkpoint_step", "Step of the newest checkpoint.", static_cast<double>(r.step));
    gauge("trireme_checkpoint_timestamp_seconds", "When the newest checkpoint was complete.",
          unix_seconds(when));
  }

  void write(Time, const RanksRecord& r) {
    for (size_t rank = 0; rank < r.lag_ms.size(); ++rank) {
      gauge("trireme_rank_lag_seconds", "Time per step that the other ranks waited for this rank.",
            r.lag_ms[rank] / 1e3, {{"rank", fmt::format("{}", rank)}});
    }
    for (size_t stage = 0; stage < r.stage_utilization.size(); ++stage) {
      gauge("trireme_stage_utilization_ratio",
            "Part of the time in which a pipeline stage does not wait for others.",
            r.stage_utilization[stage], {{"stage", fmt::format("{}", stage)}});
    }
  }

  template <class Other>
  void write(Time, const Other&) {}

  void at(int64_t step, int64_t epoch) {
    gauge("trireme_step", "Updates done.", static_cast<double>(step));
    gauge("trireme_epoch", "Epoch, from 0.", static_cast<double>(epoch));
  }

  void bad_records(int64_t count) {
    counter("trireme_bad_records_total", "Samples skipped because they could not be read.",
            static_cast<double>(count));
  }

  void write_own() {
    const std::lock_guard lock(values->mutex);
    gauge("trireme_resident_memory_bytes", "Resident set of rank 0.",
          static_cast<double>(resident_bytes()));
    for (const DropCounts::Count& count : dropped->get()) {
      counter("trireme_metrics_dropped_total",
              "Records dropped by a sink that failed or did not keep up.",
              static_cast<double>(count.records), {{"sink", count.sink}});
    }
  }

  using Key = std::pair<std::string, prometheus::Labels>;
  const std::string address;
  const int port;
  const std::shared_ptr<const DropCounts> dropped;
  std::shared_ptr<LockedRegistry> values = std::make_shared<LockedRegistry>();
  std::map<Key, prometheus::Gauge*> gauges;
  std::map<Key, prometheus::Counter*> counters;
  std::unique_ptr<prometheus::Exposer> exposer;  // its threads read the values
};

PrometheusSink::PrometheusSink(const std::string& address, int port,
                               std::shared_ptr<const DropCounts> dropped)
    : state_(std::make_unique<State>(address, port, std::move(dropped))) {}

PrometheusSink::~PrometheusSink() = default;

bool PrometheusSink::wants(const MetricsRecord& record) const {
  return is_one_of<StartRecord, StepRecord, EvaluationRecord, CheckpointRecord, RanksRecord>(
      record);
}

void PrometheusSink::open() {
  const std::string endpoint = fmt::format("{}:{}", state_->address, state_->port);
  try {
    // Each thread serves one connection at a time.
    state_->exposer = std::make_unique<prometheus::Exposer>(std::vector<std::string>{
        "listening_ports", endpoint, "num_threads", "16", "request_timeout_ms", "1000"});
  } catch (const std::exception&) {  // its message is not useful (a null pointer)
    throw Error(
        fmt::format("metrics.port: cannot listen on {}: another program may be using it, or it "
                    "is not an address of this host",
                    endpoint));
  }
  state_->exposer->RegisterCollectable(state_->values);
}

void PrometheusSink::write(const MetricsEvent& event) {
  const std::lock_guard lock(state_->values->mutex);
  std::visit([&](const auto& record) { state_->write(event.when, record); }, event.record);
}

void PrometheusSink::flush() { state_->write_own(); }

}  // namespace trireme::train
