#include "data/loader/reader.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "core/fault_point.h"
#include "data/mix.h"

namespace trireme::data {

std::string describe_position(const Reading& reading) {
  std::string text = fmt::format("sample {} of epoch {}", reading.sample, reading.epoch + 1);
  return reading.where.empty() ? text : fmt::format("{} ({})", text, reading.where);
}

UnitReader::UnitReader(const Dataset& dataset, const LoaderOptions& options, int worker,
                       WorkerStatus& status, const std::atomic<bool>& drop)
    : dataset_(dataset),
      options_(options),
      in_memory_(dataset.in_memory()),
      size_(dataset.size()),
      worker_(worker),
      status_(status),
      drop_(drop) {
  if (!options.mix) return;
  partner_input_.resize(dataset.spec().input.bytes());
  partner_target_.resize(dataset.spec().target.bytes());
}

// A thread that ends is caught as a reference to null.
__attribute__((no_sanitize("null"))) void UnitReader::read(Slot& slot, const Rows& rows) {
  status_.begin(slot.number, slot.batch.epoch);
  first_ = true;
  try {
    const Order order(options_.order, options_.seed, slot.batch.epoch, size_);
    if (options_.mix && options_.reads) {
      read_pairs(slot, order, rows);
    } else {
      read_rows(slot, order, rows);
    }
  } catch (const abi::__forced_unwind&) {  // pthread_exit, see thread_ended()
    throw;
  } catch (const Error&) {
    slot.add({row_, sample_, std::current_exception()});
  } catch (const std::exception& error) {
    slot.add({row_, sample_, failure(fmt::format("could not be read: {}", error.what()))});
  } catch (...) {
    slot.add({row_, sample_, failure("could not be read: exception of unknown type")});
  }
  status_.end();
}

void UnitReader::thread_ended(Slot& slot) const {
  slot.add({row_, sample_, failure("the thread that was reading it has ended")});
}

void UnitReader::read_rows(Slot& slot, const Order& order, const Rows& rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    if (drop_.load(std::memory_order_relaxed)) return;
    read_row(slot, order, row, slot.at(row - slot.batch.first_row));
  }
}

void UnitReader::read_pairs(Slot& slot, const Order& order, const Rows& rows) {
  const Batch& batch = slot.batch;
  const auto memory_of = [&](int64_t row) {
    const bool own = row >= rows.begin && row < rows.end;
    return own ? slot.at(row - batch.first_row)
               : SampleMemory{partner_input_.data(), partner_target_.data()};
  };
  for (int64_t row = rows.begin - rows.begin % 2; row < rows.end; row += 2) {
    if (drop_.load(std::memory_order_relaxed)) return;
    const SampleMemory first = memory_of(row);
    const SampleMemory second = memory_of(row + 1);
    const bool has_first = read_row(slot, order, row, first);
    const bool has_both = row + 1 < batch.global_rows && read_row(slot, order, row + 1, second);
    if (!has_first || !has_both) continue;  // a row without its partner is not mixed
    (*options_.mix)(batch.epoch, batch.position + row, {first.input, first.target},
                    {second.input, second.target});
  }
}

// Returns false if the sample is skipped.
bool UnitReader::read_row(Slot& slot, const Order& order, int64_t row, const SampleMemory& to) {
  const Batch& batch = slot.batch;
  row_ = row;
  const SampleId id = order.at(batch.position + row);
  sample_ = id.index;
  status_.set_sample(sample_);
  if (!in_memory_) status_.restart_timer();
  report_progress(std::exchange(first_, false));
  const bool own = row >= batch.first_row && row < batch.first_row + batch.rows;
  if (own) {
    slot.set_sample(row - batch.first_row, sample_);
    const bool follows = options_.order.streams > 0 && batch.position > 0;
    slot.set_continues(row - batch.first_row, follows && dataset_.continues(id));
  }
  if (!options_.reads) return true;
  try {
    read_sample(id, to);
    return true;
  } catch (const DataError&) {
    if (!options_.max_bad_records) throw;
    // Bad rows of other ranks are counted there.
    if (own) slot.add({row, sample_, std::current_exception(), /*is_bad_record=*/true});
    return false;
  }
}

void UnitReader::read_sample(const SampleId& id, const SampleMemory& to) {
  if (fault_point("data", id.index)) throw DataError(dataset_.where(id.index), "cannot be read");
  dataset_.read(id, to.input, to.target);
}

void UnitReader::report_progress(bool first_of_unit) const {
  if (worker_ >= 0 || !options_.progress || (in_memory_ && !first_of_unit)) return;
  options_.progress(describe_position(status_.reading(worker_, dataset_)));
}

std::exception_ptr UnitReader::failure(const std::string& what) const {
  return std::make_exception_ptr(
      DataError(describe_position(status_.reading(worker_, dataset_)), what));
}

}  // namespace trireme::data
