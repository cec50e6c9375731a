// Answers Prometheus over HTTP at /metrics: where training is, how fast, and what of it waits.
#pragma once

#include <memory>
#include <string>

#include "trainer/report/sinks/hub.h"
#include "trainer/report/sinks/sink.h"

namespace trireme::train {

class PrometheusSink : public Sink {
 public:
  // `address` is that of an interface of this host.
  PrometheusSink(const std::string& address, int port, std::shared_ptr<const DropCounts> dropped);
  ~PrometheusSink() override;

  std::string name() const override { return "prometheus"; }
  bool wants(const MetricsRecord& record) const override;
  // Throws Error when the port cannot be had.
  void open() override;
  void write(const MetricsEvent& event) override;
  void flush() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::train
