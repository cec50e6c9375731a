// Keeps a ring of batches filled ahead of the step by worker threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/device.h"
#include "data/dataset.h"

namespace trireme {

// This rank's share of one global batch.
struct Batch {
  std::byte* inputs = nullptr;   // rows x input bytes; rows beyond `rows` are zero
  std::byte* targets = nullptr;  // rows x target bytes
  int64_t rows = 0;              // samples in this share, may be 0
  int64_t first_row = 0;         // its position within the global batch
  int64_t global_rows = 0;       // samples in the global batch
  int64_t epoch = 0;
  int64_t position = 0;   // samples of the epoch before this global batch
  bool last_of_epoch = false;
};

struct LoaderOptions {
  uint64_t seed = 0;
  bool shuffle = true;
  int64_t global_batch = 1;
  int64_t capacity = 1;  // rows that a Batch has room for, at least this rank's largest share
  int rank = 0;
  int ranks = 1;
  int threads = 1;
  int depth = 4;  // batches in the ring
};

class Loader {
 public:
  // Batch memory comes from `device`-visible host memory. Both outlive the loader.
  Loader(const Dataset& dataset, Device& device, const LoaderOptions& options);
  ~Loader();

  // Begins at sample `position` of `epoch` and goes on through the epochs without end. Drops what was
  // loaded ahead.
  void start(int64_t epoch, int64_t position);
  // The next batch in order. Valid until the next call. Throws what a worker threw.
  const Batch& next();
  // Seconds that the last next() waited for data.
  double wait_seconds() const;
  // Batches an epoch has.
  int64_t batches_per_epoch() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme
