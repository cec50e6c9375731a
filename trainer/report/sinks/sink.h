// A destination for the records of a run: a file, a port, a terminal.
#pragma once

#include <string>

#include "trainer/report/metrics.h"

namespace trireme::train {

// The MetricsHub calls every function but wants() from one thread per sink. An exception from any
// of them disables the sink with one warning; training continues without it.
class Sink {
 public:
  virtual ~Sink() = default;
  // Returns a name for messages and counters, such as "tensorboard".
  virtual std::string name() const = 0;
  // Returns true if write() handles records of this type. Thread-safe.
  virtual bool wants(const MetricsRecord& record) const = 0;
  // Called once, before the first write().
  virtual void open() {}
  virtual void write(const MetricsEvent& event) = 0;
  // Makes everything written so far visible to readers. Called after each batch of records.
  virtual void flush() {}
};

// Combines lambdas, one for each type of record, into a visitor for std::visit.
template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;  // clang before 17 does not deduce it

template <class... Kinds>
bool is_one_of(const MetricsRecord& record) {
  return (std::holds_alternative<Kinds>(record) || ...);
}

}  // namespace trireme::train
