#include "data/loader/slot.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace trireme::data {

// Zeroing the memory here places it on the NUMA node of the calling thread (first touch). The
// workers, which this thread creates, inherit its CPU binding (mpirun --bind-to, srun --cpu-bind),
// so the memory is local to them.
void Slot::allocate(Device& device, int64_t capacity, const SampleSpec& spec, bool reads) {
  input_bytes_ = reads ? spec.input.bytes() : 0;
  target_bytes_ = reads ? spec.target.bytes() : 0;
  const size_t rows = capacity;
  samples_.resize(rows);
  places_.resize(rows);
  batch.samples = samples_.data();
  continues_ = std::make_unique<bool[]>(rows);
  batch.continues = continues_.get();
  if (!reads) return;
  inputs_ = device.allocate_host(rows * input_bytes_);
  targets_ = device.allocate_host(rows * target_bytes_);
  std::memset(inputs_.data(), 0, rows * input_bytes_);
  std::memset(targets_.data(), 0, rows * target_bytes_);
  batch.inputs = inputs_.data();
  batch.targets = targets_.data();
}

void Slot::add(RowFault fault) {
  std::lock_guard lock(mutex_);
  faults_.push_back(std::move(fault));
}

const std::vector<RowFault>& Slot::faults() {
  std::ranges::sort(faults_, {}, &RowFault::row);  // each row has at most one
  return faults_;
}

void Slot::clear() {
  number = -1;
  failure = nullptr;
  faults_.clear();
}

void Slot::begin(int64_t its_number, int its_units) {
  clear();
  number = its_number;
  units = units_left = its_units;
  used_rows_ = std::max(used_rows_, batch.rows);
}

void Slot::remove_faulty_rows() {
  const int64_t share = batch.rows;
  batch.places = nullptr;
  if (!faults_.empty()) {
    batch.places = places_.data();
    auto fault = faults().begin();
    batch.rows = 0;
    for (int64_t row = 0; row < share; ++row) {
      if (fault != faults_.end() && fault->row == batch.first_row + row) {
        ++fault;
        continue;
      }
      const SampleMemory from = at(row);
      samples_[batch.rows] = samples_[row];
      places_[batch.rows] = batch.first_row + row;
      const SampleMemory to = at(batch.rows++);
      if (from.input == to.input) continue;
      std::memcpy(to.input, from.input, input_bytes_);
      std::memcpy(to.target, from.target, target_bytes_);
    }
  }
  if (!batch.inputs) return;
  const SampleMemory end = at(batch.rows);
  const size_t rest = used_rows_ - batch.rows;
  std::memset(end.input, 0, rest * input_bytes_);
  std::memset(end.target, 0, rest * target_bytes_);
  used_rows_ = batch.rows;
}

void Slot::shorten_rows() {
  if (batch.length == 0 || !batch.inputs) return;
  const auto rows = static_cast<size_t>(batch.rows);
  const size_t bytes = static_cast<size_t>(batch.length) * sizeof(int32_t);
  for (size_t row = 1; row < rows; ++row) {
    std::memmove(batch.inputs + row * bytes, batch.inputs + row * input_bytes_, bytes);
  }
  std::memset(batch.inputs + rows * bytes, 0, rows * (input_bytes_ - bytes));
}

}  // namespace trireme::data
