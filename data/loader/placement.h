// Where batches lie in the epochs, and the units of work that a batch is cut into. Nothing here
// depends on what has been loaded.
#pragma once

#include <cstdint>

#include "data/loader.h"

namespace trireme::data {

// Rows [begin, end) of a global batch.
struct Rows {
  int64_t begin = 0;
  int64_t end = 0;
};

class Placement {
 public:
  // Of an epoch of `size` samples.
  Placement(const LoaderOptions& options, int64_t size, int64_t unit_rows);

  // Batches are numbered from here, see Loader::start.
  void start(int64_t epoch, int64_t position);
  int64_t batches_per_epoch() const;
  // Sets all of a batch but its memory.
  void place(int64_t number, Batch& batch) const;

  // Units share the rows of a batch without dividing a pair of rows 2k and 2k + 1 of the global
  // batch, unless the ranks do. There is at least one, which has no rows where the batch has none.
  int units(const Batch& batch) const;
  Rows unit(const Batch& batch, int index) const;

 private:
  int64_t size_;
  int64_t global_batch_;
  int rank_;
  int ranks_;
  int64_t unit_rows_;  // even
  int64_t first_epoch_ = 0;
  int64_t first_position_ = 0;
};

// Rows of a unit, even: few enough that all threads find work in a batch, and enough that taking a
// unit (a mutex) costs little beside reading it. Where reading but copies that is the whole batch.
int64_t rows_of_unit(const LoaderOptions& options, bool in_memory);

}  // namespace trireme::data
