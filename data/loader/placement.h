// Computes the position of each batch in the epochs, and splits batches into units of work. All
// results are pure functions of the arguments.
#pragma once

#include <cstdint>

#include "data/loader.h"

namespace trireme::data {

// Rows [begin, end) of a global batch.
struct Rows {
  int64_t begin = 0;
  int64_t end = 0;
};

// Used by the loader and its workers; thread-safe except for start().
class Placement {
 public:
  // `size` is the number of samples in an epoch, `unit_rows` the number of rows per unit.
  Placement(const LoaderOptions& options, int64_t size, int64_t unit_rows);

  // Makes this the position of batch 0, see Loader::start.
  void start(int64_t epoch, int64_t position);
  int64_t batches_per_epoch() const;
  // Sets all fields of a batch except its memory.
  void place(int64_t number, Batch& batch) const;

  // Returns the number of units of this rank's share of a batch, at least 1. Rows 2k and 2k + 1 of
  // the global batch belong to the same unit, unless they belong to different ranks.
  int units(const Batch& batch) const;
  // Returns the rows of a unit, which are empty if the share is empty.
  Rows unit(const Batch& batch, int index) const;

 private:
  OrderOptions order_;
  uint64_t seed_;
  int64_t size_;
  int64_t global_batch_;
  bool has_streams_;  // rows always belong to the same rank
  int rank_;
  int ranks_;
  int64_t unit_rows_;  // even
  int64_t first_epoch_ = 0;
  int64_t first_position_ = 0;
};

// Returns the number of rows per unit, which is even. A unit is small enough that all threads share
// the work of a batch, and large enough that claiming it (with a mutex) costs little compared to
// reading it. If samples are in memory, a unit is an entire batch.
int64_t rows_per_unit(const LoaderOptions& options, bool in_memory);

}  // namespace trireme::data
