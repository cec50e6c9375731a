// A place of the ring: the memory of a batch, and what could not be read into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

#include "core/device.h"
#include "data/loader.h"

namespace trireme::data {

// Why a row is not there.
struct RowFault {
  int64_t row = 0;  // of the global batch
  int64_t sample = 0;
  std::exception_ptr error;
  bool is_bad_record = false;  // and may be left out; otherwise the batch has failed
};

struct SampleMemory {
  std::byte* input = nullptr;
  std::byte* target = nullptr;
};

class Slot {
 public:
  void allocate(Device& device, int64_t capacity, const SampleSpec& spec);

  // For threads that fill it. Rows are counted from the beginning of the share.
  SampleMemory at(int64_t row) const {
    return {batch.inputs + row * input_bytes_, batch.targets + row * target_bytes_};
  }
  void is_sample(int64_t row, int64_t sample) { samples_[row] = sample; }
  void add(RowFault fault);

  // For the loader's own thread, once nobody fills it any more. Faults in the order of the rows.
  const std::vector<RowFault>& faults();
  // Moves the good rows together, in order, and clears what is beyond them.
  void close_ranks();

  // The rest is for the loader's own thread, or under its lock.
  // Forgets what it holds.
  void clear();
  // Memory is about to be filled with batch `its_number`, which has been placed.
  void begin(int64_t its_number, int its_units);

  Batch batch;
  int64_t number = -1;  // of the batch that is here or is being loaded; -1: none
  int units = 0;
  int units_left = 0;  // that are not done
  std::exception_ptr failure;

 private:
  Buffer inputs_;
  Buffer targets_;
  std::vector<int64_t> samples_;
  size_t input_bytes_ = 0;
  size_t target_bytes_ = 0;
  int64_t used_rows_ = 0;  // that may hold something
  std::mutex mutex_;       // of faults_
  std::vector<RowFault> faults_;
};

}  // namespace trireme::data
