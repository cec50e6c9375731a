// Reads units of work into their slots, one after the other; each thread has its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "data/loader/placement.h"
#include "data/loader/post.h"
#include "data/loader/slot.h"

namespace trireme::data {

// "sample 4711 of epoch 2 (FILE: record 12)"
std::string place_of(const Reading& reading);

class UnitReader {
 public:
  // Everything outlives the reader. `worker` as in Reading; the loader's own thread, -1, tells
  // options.progress what it is about to read. It stops in the middle of a unit when `drop` is set.
  UnitReader(const Dataset& dataset, const LoaderOptions& options, int worker, Post& post,
             const std::atomic<bool>& drop);

  // What cannot be read becomes a fault of the slot. Throws nothing; only the end of the thread
  // (pthread_exit) goes through.
  void read(Slot& slot, const Rows& rows);
  // Sets the batch's weight, where samples have weights: for one of its units to do. Sums in the
  // order of the rows, so that all ranks come to the same.
  void weigh(Slot& slot) const;
  // Adds a fault for the row that it was at.
  void ended(Slot& slot) const;

 private:
  void read_rows(Slot& slot, const Order& order, const Rows& rows);
  void read_pairs(Slot& slot, const Order& order, const Rows& rows);
  bool read_row(Slot& slot, const Order& order, int64_t row, const SampleMemory& to);
  void read_sample(const SampleId& id, const SampleMemory& to);
  void tell(bool first_of_unit) const;
  std::exception_ptr failure(const std::string& what) const;

  const Dataset& dataset_;
  const LoaderOptions& options_;
  const bool in_memory_;
  const int64_t size_;
  const int worker_;
  Post& post_;
  const std::atomic<bool>& drop_;
  int64_t row_ = 0;  // that is being read
  int64_t sample_ = 0;
  bool first_ = true;  // of its unit
  // A row that is another rank's, but is mixed with one that is ours.
  std::vector<std::byte> partner_input_;
  std::vector<std::byte> partner_target_;
};

}  // namespace trireme::data
