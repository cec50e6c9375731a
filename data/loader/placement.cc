#include "data/loader/placement.h"

#include <algorithm>

namespace trireme::data {
namespace {

constexpr int64_t kMaxRows = 32;  // rows per unit, unless samples are in memory

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t even_below(int64_t n) { return n - n % 2; }

}  // namespace

Placement::Placement(const LoaderOptions& options, int64_t size, int64_t unit_rows)
    : order_(options.order),
      seed_(options.seed),
      size_(size),
      global_batch_(options.global_batch),
      has_streams_(options.order.streams > 0),
      rank_(options.rank),
      ranks_(options.ranks),
      unit_rows_(unit_rows) {}

void Placement::start(int64_t epoch, int64_t position) {
  first_epoch_ = epoch;
  first_position_ = position;
}

int64_t Placement::batches_per_epoch() const { return ceil_div(size_, global_batch_); }

void Placement::place(int64_t number, Batch& batch) const {
  const int64_t in_first = ceil_div(size_ - first_position_, global_batch_);
  batch.epoch = first_epoch_;
  batch.position = first_position_ + number * global_batch_;
  if (number >= in_first) {
    batch.epoch += 1 + (number - in_first) / batches_per_epoch();
    batch.position = (number - in_first) % batches_per_epoch() * global_batch_;
  }
  batch.global_rows = std::min(global_batch_, size_ - batch.position);
  batch.last_of_epoch = batch.position + batch.global_rows == size_;
  const Share share = share_of(has_streams_ ? global_batch_ : batch.global_rows, rank_, ranks_);
  batch.length =
      Order(order_, seed_, batch.epoch, size_).batch_length(batch.position, batch.global_rows);
  batch.first_row = share.begin;
  batch.rows = std::clamp<int64_t>(batch.global_rows - share.begin, 0, share.rows);
}

int Placement::units(const Batch& batch) const {
  const int64_t end = batch.first_row + batch.rows;
  const int64_t count = ceil_div(end - even_below(batch.first_row), unit_rows_);
  return batch.rows == 0 ? 1 : static_cast<int>(count);
}

Rows Placement::unit(const Batch& batch, int index) const {
  const int64_t begin = even_below(batch.first_row) + index * unit_rows_;
  return {std::max(begin, batch.first_row),
          std::min(begin + unit_rows_, batch.first_row + batch.rows)};
}

int64_t rows_per_unit(const LoaderOptions& options, bool in_memory) {
  if (options.threads == 0 || in_memory) return even_below(options.global_batch) + 2;
  const int64_t share = options.global_batch / options.ranks;
  return std::clamp<int64_t>(even_below(share / (2 * options.threads)), 2, kMaxRows);
}

}  // namespace trireme::data
