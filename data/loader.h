// The data loader: worker threads that fill a ring of batches ahead of the training step. Several
// workers load the rows of a batch together.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "data/bad_records.h"
#include "data/dataset.h"
#include "data/sampler.h"

namespace trireme::data {

class Mix;

// This rank's share of a global batch. Samples that cannot be read may be skipped (see
// LoaderOptions::max_bad_records). Then `rows` is less than this rank's share, and the rows of all
// ranks add up to less than `global_rows`.
struct Batch {
  // capacity x input bytes; rows beyond `rows` are zero. With `length`, only the first `length`
  // tokens of each row, one row after the other. Null unless LoaderOptions::reads.
  std::byte* inputs = nullptr;
  std::byte* targets = nullptr;      // capacity x target bytes, likewise
  const int64_t* samples = nullptr;  // dataset index of each row
  // If samples of this share were skipped, the place of each row in the global batch, which random
  // numbers of the row are keyed by. Otherwise null: it is first_row + row.
  const int64_t* places = nullptr;
  // Whether the sample of each row continues that of the same row in the batch before; see
  // OrderOptions::streams and Dataset::continues().
  const bool* continues = nullptr;
  int64_t rows = 0;         // samples of this rank, may be 0
  int64_t first_row = 0;    // this share's position within the global batch
  int64_t global_rows = 0;  // samples in the global batch
  int64_t length = 0;       // see Order::batch_length; the same on all ranks
  int64_t epoch = 0;
  int64_t position = 0;  // number of samples of the epoch before this global batch
  bool last_of_epoch = false;
};

struct LoaderOptions {
  uint64_t seed = 0;
  OrderOptions order;
  // With OrderOptions::streams, their number. A row then always belongs to the same rank, even if
  // the last batch of an epoch is short, and bad records cannot be skipped.
  int64_t global_batch = 1;
  int64_t capacity = 1;  // rows allocated per Batch; at least this rank's largest share
  int rank = 0;
  int ranks = 1;
  int threads = 0;  // worker threads; 0 loads in next()
  int depth = 4;    // batches in the ring, including the one in use; 1 without threads
  // If set, mixes rows 2k and 2k + 1 of each global batch with each other, even if they belong to
  // different ranks. Must outlive the loader.
  const Mix* mix = nullptr;
  // The number of different samples that this rank may skip in an epoch because they cannot be read
  // (DataError), including those that the dataset skipped when it was opened. If empty, the first
  // one is an error.
  std::optional<int64_t> max_bad_records;
  // Whether samples are read. If not, batches have positions and sizes but no memory. Requires
  // that max_bad_records is empty: how many rows there are depends on the samples that are skipped.
  bool reads = true;
  // Called on the thread of next(). Without workers, it receives each sample before it is read
  // (only each batch if samples are in memory). With workers, it receives four times per second
  // what next() is waiting for: "sample 4711 of epoch 2 (FILE: record 12), which worker 1 has been
  // reading for 3.2 s".
  std::function<void(std::string_view)> progress;
};

// A sample that is being read.
struct Reading {
  int worker = -1;     // -1 for the thread of next()
  int64_t batch = -1;  // counted from start()
  int64_t epoch = 0;
  int64_t sample = 0;  // dataset index
  double seconds = 0;  // elapsed for the sample, or for its batch if samples are in memory
  std::string where;   // Dataset::where
};

// Rows that a worker has read as one unit of work, and when.
struct ReadRows {
  int worker = 0;
  int64_t epoch = 0;
  int64_t position = 0;  // position of the first row in the epoch
  int64_t rows = 0;
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;
};

// Returns "sample 4711 of epoch 2 (FILE: record 12), which worker 1 has been reading for 3.2 s".
std::string to_string(const Reading& reading);

// Loads batches in the order of the epochs. The batches are a pure function of the options (except
// threads and depth), the start position and the number of preceding batches. Not thread-safe
// except for readings().
class Loader {
 public:
  // Allocates batches in host memory that `device` can access. `dataset` and `device` must outlive
  // the loader. Throws Error if the options are inconsistent or the dataset is empty.
  Loader(const Dataset& dataset, Device& device, const LoaderOptions& options);
  // Discards batches that are being loaded.
  ~Loader();

  // Starts at sample `position`, in [0, size], of `epoch` and continues through the following
  // epochs indefinitely. Global batches have `global_batch` samples; the last one of an epoch may
  // be smaller. Discards batches that were loaded ahead.
  void start(int64_t epoch, int64_t position);
  // Returns the next batch, which is valid until the next call of next() or start(). Blocks until
  // it is loaded. If a sample could not be read, throws the exception of the first such row,
  // converted to a DataError with the sample's index unless it is an Error, and throws it again
  // until the next start(). Also throws if a worker ended before it had read its rows. Allocates
  // memory only if it has to wait, report progress or skip samples.
  const Batch& next();
  // Returns LoaderOptions::max_bad_records.
  std::optional<int64_t> max_bad_records() const;
  // Returns what the workers are reading now. Any thread may call this.
  std::vector<Reading> readings() const;
  // Starts or stops recording what the workers read.
  void enable_journal(bool on);
  // Returns and removes the recorded reads, in the order in which they ended.
  std::vector<ReadRows> take_journal();
  // Returns the samples skipped by this loader so far, each counted once.
  BadRecords bad_records() const;
  // Returns the seconds that the last call of next() waited for data.
  double wait_seconds() const;
  // Returns the number of batches in a full epoch.
  int64_t batches_per_epoch() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::data
