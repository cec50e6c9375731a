// A slot of the loader's ring: the memory of a batch, and the errors that occurred while loading
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "core/device.h"
#include "data/loader.h"

namespace trireme::data {

// A row that could not be read.
struct RowFault {
  int64_t row = 0;     // row of the global batch
  int64_t sample = 0;  // dataset index
  std::exception_ptr error;
  bool is_bad_record = false;  // the row may be skipped; otherwise the batch has failed
};

struct SampleMemory {
  std::byte* input = nullptr;
  std::byte* target = nullptr;
};

class Slot {
 public:
  // Allocates memory for samples if `reads`, see LoaderOptions.
  void allocate(Device& device, int64_t capacity, const SampleSpec& spec, bool reads);

  // The next three functions are for the threads that fill the slot. add() is thread-safe; the
  // others may be called concurrently for different rows. Rows are counted from the first row
  // of this rank's share.
  SampleMemory at(int64_t row) const {
    return {batch.inputs + row * input_bytes_, batch.targets + row * target_bytes_};
  }
  void set_sample(int64_t row, int64_t sample) { samples_[row] = sample; }
  void set_continues(int64_t row, bool continues) { continues_[row] = continues; }
  void add(RowFault fault);

  // The next two functions are for the loader's thread, after the slot has been filled.
  // Returns the faults in the order of their rows.
  const std::vector<RowFault>& faults();
  // Moves the good rows together, keeping their order, sets batch.places if there are faults, and
  // zeroes the rows after them.
  void remove_faulty_rows();
  // Moves the first batch.length tokens of the rows together, if it is positive.
  void shorten_rows();

  // The following members may only be accessed by the loader's thread or while holding its lock.
  void clear();
  // Prepares for loading batch `its_number`, after Placement::place has set `batch`.
  void begin(int64_t its_number, int its_units);

  Batch batch;
  int64_t number = -1;  // the batch that is loaded or being loaded; -1 if there is none
  int units = 0;
  int units_left = 0;  // units that are not loaded yet
  std::exception_ptr failure;

 private:
  Buffer inputs_;
  Buffer targets_;
  std::vector<int64_t> samples_;
  std::vector<int64_t> places_;
  std::unique_ptr<bool[]> continues_;
  size_t input_bytes_ = 0;
  size_t target_bytes_ = 0;
  int64_t used_rows_ = 0;  // rows that may be nonzero
  std::mutex mutex_;       // guards faults_
  std::vector<RowFault> faults_;
};

}  // namespace trireme::data
