// Reads units of work into their slots.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "data/loader/placement.h"
#include "data/loader/slot.h"
#include "data/loader/worker_status.h"

namespace trireme::data {

// Returns "sample 4711 of epoch 2 (FILE: record 12)".
std::string describe_position(const Reading& reading);

// Each thread has its own reader.
class UnitReader {
 public:
  // The arguments must outlive the reader. See Reading for `worker`; if it is -1, the reader calls
  // options.progress before it reads a sample. If `drop` becomes true, read() returns early.
  UnitReader(const Dataset& dataset, const LoaderOptions& options, int worker, WorkerStatus& status,
             const std::atomic<bool>& drop);

  // Reads the rows of a unit. Records errors as faults of the slot and throws nothing, except that
  // the forced unwinding of pthread_exit passes through.
  void read(Slot& slot, const Rows& rows);
  // Adds a fault which says that the thread ended while it was reading the current row.
  void thread_ended(Slot& slot) const;

 private:
  void read_rows(Slot& slot, const Order& order, const Rows& rows);
  void read_pairs(Slot& slot, const Order& order, const Rows& rows);
  bool read_row(Slot& slot, const Order& order, int64_t row, const SampleMemory& to);
  void read_sample(const SampleId& id, const SampleMemory& to);
  void report_progress(bool first_of_unit) const;
  std::exception_ptr failure(const std::string& what) const;

  const Dataset& dataset_;
  const LoaderOptions& options_;
  const bool in_memory_;
  const int64_t size_;
  const int worker_;
  WorkerStatus& status_;
  const std::atomic<bool>& drop_;
  int64_t row_ = 0;     // the row that is being read
  int64_t sample_ = 0;  // its sample
  bool first_ = true;   // true until the first row of a unit is reported
  // Memory for a row of another rank that is mixed with a row of this rank.
  std::vector<std::byte> partner_input_;
  std::vector<std::byte> partner_target_;
};

}  // namespace trireme::data
