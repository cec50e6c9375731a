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
  std::byte* inputs = nullptr;   // capacity x input bytes; rows beyond `rows` are zero
  std::byte* targets = nullptr;  // capacity x target bytes, likewise
  int64_t rows = 0;              // samples in this share, may be 0
  int64_t first_row = 0;         // its position within the global batch
  int64_t global_rows = 0;       // samples in the global batch
  int64_t epoch = 0;
  int64_t position = 0;  // samples of the epoch before this global batch
  bool last_of_epoch = false;
};

struct LoaderOptions {
  uint64_t seed = 0;
  bool shuffle = true;  // by Permutation(seed, epoch); otherwise samples come as they are numbered
  int64_t global_batch = 1;
  int64_t capacity = 1;  // rows that a Batch has room for, at least this rank's largest share
  int rank = 0;
  int ranks = 1;
  int threads = 0;  // 0: next() itself loads
  int depth = 4;    // batches in the ring, the one in use included; 1 without threads
};

// What comes is a pure function of (options but for threads and depth, where it started, how many
// came before). For one thread to use.
class Loader {
 public:
  // Batch memory comes from `device`-visible host memory. Both outlive the loader. Throws Error
  // when the options contradict one another or the dataset is empty.
  Loader(const Dataset& dataset, Device& device, const LoaderOptions& options);
  // Whatever is being loaded is dropped.
  ~Loader();

  // Begins at sample `position` of `epoch`, in [0, size], and goes on through the epochs without
  // end: global batches of `global_batch` samples, the last of an epoch shorter. Drops what was
  // loaded ahead.
  void start(int64_t epoch, int64_t position);
  // The next batch in order. Valid until the next call of next or start. Throws what reading one of
  // its samples threw, and again until the next start. Does not allocate.
  const Batch& next();
  // Seconds that the last next() waited for data.
  double wait_seconds() const;
  // Batches of a whole epoch.
  int64_t batches_per_epoch() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme
