// Keeps a ring of batches filled ahead of the step by worker threads, which share the rows of each.
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

// This rank's share of one global batch. Samples that cannot be read may be left out of it (see
// LoaderOptions::max_bad_records): then there are fewer rows than its share, and those of all ranks
// are fewer than global_rows. What divides by the weight, as the gradient of the mean loss does,
// sees such a sample as one whose loss is constant: it contributes nothing.
struct Batch {
  std::byte* inputs = nullptr;       // capacity x input bytes; rows beyond `rows` are zero
  std::byte* targets = nullptr;      // capacity x target bytes, likewise
  const int64_t* samples = nullptr;  // which sample of the dataset each of `rows` is
  int64_t rows = 0;                  // samples here, may be 0
  int64_t first_row = 0;             // this share's position within the global batch
  int64_t global_rows = 0;           // samples in the global batch
  double weight = 0;                 // of these together: what their mean loss divides by
  int64_t epoch = 0;
  int64_t position = 0;  // samples of the epoch before this global batch
  bool last_of_epoch = false;
};

struct LoaderOptions {
  uint64_t seed = 0;
  OrderOptions order;
  int64_t global_batch = 1;
  int64_t capacity = 1;  // rows that a Batch has room for, at least this rank's largest share
  int rank = 0;
  int ranks = 1;
  int threads = 0;  // 0: next() itself loads
  int depth = 4;    // batches in the ring, the one in use included; 1 without threads
  // Rows 2k and 2k + 1 of each global batch are mixed with each other, also where another rank has
  // one of them. Outlives the loader.
  const Mix* mix = nullptr;
  // Of each sample of the dataset, in the mean loss; null: all are 1.
  std::shared_ptr<const std::vector<float>> weights = nullptr;
  // A sample that cannot be read (DataError) is left out, so many different ones together with
  // those that the dataset left out when it was opened. Empty: it is an error.
  std::optional<int64_t> max_bad_records;
  // Told, on the thread of next(), what that is about to read itself, and every quarter of a second
  // what it waits for: "sample 4711 of epoch 2 (FILE: record 12), which worker 1 has been reading
  // for 3.2 s". Where samples are in memory it hears of each batch, else of each sample.
  std::function<void(std::string_view)> progress;
};

// A sample that is being read.
struct Reading {
  int worker = -1;     // -1: next() itself
  int64_t batch = -1;  // counted from start()
  int64_t epoch = 0;
  int64_t sample = 0;  // of the dataset
  double seconds = 0;  // so far; with its batch where samples are in memory
  std::string where;   // Dataset::where
};
// What a worker has read at once, and when.
struct ReadRows {
  int worker = 0;
  int64_t epoch = 0;
  int64_t position = 0;  // in the epoch: of the first row
  int64_t rows = 0;
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;
};
// "sample 4711 of epoch 2 (FILE: record 12), which worker 1 has been reading for 3.2 s"
std::string to_string(const Reading& reading);

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
  // its samples (the first of those that failed) threw, as DataError with the sample's number when
  // it is not an Error already, and again until the next start; also when a worker has ended before
  // its rows were there. Does not allocate unless it has to wait, to tell or to leave out.
  const Batch& next();
  // What workers read now, for any thread to ask.
  std::vector<Reading> readings() const;
  // Begins to note what workers read, or ends it.
  void keep_journal(bool on);
  // What was noted and not taken yet, in the order in which it ended.
  std::vector<ReadRows> take_journal();
  // Samples that were left out of the batches that came since this was made, each counted once.
  BadRecords bad_records() const;
  // Seconds that the last next() waited for data.
  double wait_seconds() const;
  // Batches of a whole epoch.
  int64_t batches_per_epoch() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::data
