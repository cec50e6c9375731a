// Serves Prometheus metrics over HTTP at /metrics: progress, losses, speed and waiting times.
#pragma once

#include <memory>
#include <string>

#include "trainer/report/sinks/hub.h"
#include "trainer/report/sinks/sink.h"

namespace trireme::train {

class PrometheusSink : public Sink {
 public:
  // `address` is the IPv4 address of a network interface of this host.
  PrometheusSink(const std::string& address, int port, std::shared_ptr<const DropCounts> dropped);
  ~PrometheusSink() override;

  std::string name() const override { return "prometheus"; }
  bool wants(const MetricsRecord& record) const override;
  // Throws Error if the server cannot listen on the port.
  void open() override;
  void write(const MetricsEvent& event) override;
  void flush() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::train
