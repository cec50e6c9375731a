// Somewhere that records of a run go: a file, a port, a terminal. Each sink has a thread of its own
// in the hub, which alone calls it but for `wants`.
#pragma once

#include <string>

#include "trainer/report/metrics.h"

namespace trireme::train {

// Whatever throws ends the sink, with one warning; training goes on without it.
class Sink {
 public:
  virtual ~Sink() = default;
  // For people, and to count by: "tensorboard".
  virtual std::string name() const = 0;
  // Whether write() does anything with such a record. From any thread.
  virtual bool wants(const MetricsRecord& record) const = 0;
  // Before the first write.
  virtual void open() {}
  virtual void write(const MetricsEvent& event) = 0;
  // What was written is to be where others find it: nothing more may come for a while.
  virtual void flush() {}
};

// For std::visit: one function for each kind of record.
template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;  // which clang before 17 does not come to by itself

template <class... Kinds>
bool is_one_of(const MetricsRecord& record) {
  return (std::holds_alternative<Kinds>(record) || ...);
}

}  // namespace trireme::train
