#include "data/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "data/sampler.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

struct Slot {
  Batch batch;
  Buffer inputs;
  Buffer targets;
  int64_t used_rows = 0;  // that are not zero
  bool ready = false;
  std::exception_ptr failure;
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

void check(const Dataset& dataset, const LoaderOptions& options) {
  if (dataset.size() < 1) throw Error("loader: no samples in " + dataset.description());
  if (options.global_batch < 1 || options.ranks < 1 || options.rank < 0 ||
      options.rank >= options.ranks || options.threads < 0 || options.depth < 1) {
    throw Error(fmt::format(
        "loader: rank {} of {} cannot load batches of {} with {} threads, {} ahead", options.rank,
        options.ranks, options.global_batch, options.threads, options.depth));
  }
  const int64_t full = std::min(options.global_batch, dataset.size());
  const int64_t rows = share_of(full, options.rank, options.ranks).rows;
  if (options.capacity < std::max<int64_t>(rows, 1)) {
    throw Error(fmt::format("loader: batches have room for {} rows; rank {} of {} gets {} of {}",
                            options.capacity, options.rank, options.ranks, rows, full));
  }
}

}  // namespace

// Batches are numbered from where start() began. Batch n lives in slot n % depth from when a worker
// takes the number until next() has moved past it.
struct Loader::State {
  const Dataset& dataset;
  const LoaderOptions options;
  const int64_t size;
  const size_t input_bytes;
  const size_t target_bytes;
  std::vector<Slot> ring;
  int64_t first_epoch = 0;
  int64_t first_position = 0;
  double waited = 0;

  std::mutex mutex;
  std::condition_variable room;    // for workers: there is something to load
  std::condition_variable loaded;  // for next() and halt(): a worker has finished a batch
  bool running = false;            // between start() and halt(); workers take numbers
  bool ending = false;
  std::atomic<bool> drop = false;  // nobody wants what is being loaded
  int64_t taken = 0;               // numbers that workers took
  int64_t current = -1;            // the batch that next() gave or is about to give
  int busy = 0;
  int sleeping = 0;
  std::vector<std::thread> workers;

  State(const Dataset& from, Device& device, const LoaderOptions& given)
      : dataset(from),
        options(given),
        size(from.size()),
        input_bytes(from.spec().input.bytes()),
        target_bytes(from.spec().target.bytes()),
        ring(static_cast<size_t>(given.threads == 0 ? 1 : given.depth)) {
    const auto rows = static_cast<size_t>(options.capacity);
    for (Slot& slot : ring) {
      slot.inputs = device.allocate_host(rows * input_bytes);
      slot.targets = device.allocate_host(rows * target_bytes);
      std::memset(slot.inputs.data(), 0, rows * input_bytes);
      std::memset(slot.targets.data(), 0, rows * target_bytes);
      slot.batch.inputs = slot.inputs.data();
      slot.batch.targets = slot.targets.data();
    }
  }
  ~State() {
    halt();
    {
      std::lock_guard lock(mutex);
      ending = true;
    }
    room.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  Slot& slot_of(int64_t number) { return ring[static_cast<size_t>(number) % ring.size()]; }
  int64_t free_slots() const {
    return std::max<int64_t>(current, 0) + static_cast<int64_t>(ring.size()) - taken;
  }
  // Workers that found the ring full sleep until it is half empty: waking one costs more than
  // loading a small batch.
  int64_t worth_waking() const {
    return std::max<int64_t>(1, static_cast<int64_t>(ring.size()) / 2);
  }

  // Which samples batch `number` has.
  void place(int64_t number, Batch& batch) const {
    const int64_t in_first = ceil_div(size - first_position, options.global_batch);
    batch.epoch = first_epoch;
    batch.position = first_position + number * options.global_batch;
    if (number >= in_first) {
      const int64_t per_epoch = ceil_div(size, options.global_batch);
      batch.epoch += 1 + (number - in_first) / per_epoch;
      batch.position = (number - in_first) % per_epoch * options.global_batch;
    }
    batch.global_rows = std::min(options.global_batch, size - batch.position);
    batch.last_of_epoch = batch.position + batch.global_rows == size;
    const Share share = share_of(batch.global_rows, options.rank, options.ranks);
    batch.first_row = share.begin;
    batch.rows = share.rows;
  }

  void fill(int64_t number, Slot& slot) {
    Batch& batch = slot.batch;
    place(number, batch);
    slot.failure = nullptr;
    const int64_t before = std::exchange(slot.used_rows, std::max(slot.used_rows, batch.rows));
    try {
      const Permutation permutation(options.seed, static_cast<uint64_t>(batch.epoch), size);
      const int64_t begin = batch.position + batch.first_row;
      for (int64_t row = 0; row < batch.rows && !drop.load(std::memory_order_relaxed); ++row) {
        const int64_t index = options.shuffle ? permutation(begin + row) : begin + row;
        dataset.read(index, batch.inputs + static_cast<size_t>(row) * input_bytes,
                     batch.targets + static_cast<size_t>(row) * target_bytes);
      }
    } catch (...) {
      slot.failure = std::current_exception();
      return;
    }
    if (before > batch.rows) {
      const auto from = static_cast<size_t>(batch.rows);
      const auto rows = static_cast<size_t>(before - batch.rows);
      std::memset(batch.inputs + from * input_bytes, 0, rows * input_bytes);
      std::memset(batch.targets + from * target_bytes, 0, rows * target_bytes);
    }
    slot.used_rows = batch.rows;
  }

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      if (!running || free_slots() < 1) {
        ++sleeping;
        room.wait(lock, [&] { return ending || (running && free_slots() >= worth_waking()); });
        --sleeping;
        if (ending) return;
      }
      const int64_t number = taken++;
      Slot& slot = slot_of(number);
      ++busy;
      lock.unlock();
      fill(number, slot);
      lock.lock();
      slot.ready = true;
      --busy;
      if (number == current || !running) loaded.notify_one();
    }
  }

  // Afterwards no worker touches the ring.
  void halt() {
    std::unique_lock lock(mutex);
    running = false;
    drop = true;
    loaded.wait(lock, [&] { return busy == 0; });
    drop = false;
  }

  Slot& wait_for(int64_t number) {
    std::unique_lock lock(mutex);
    if (current >= 0 && current < number) slot_of(current).ready = false;
    current = number;
    if (sleeping > 0 && free_slots() >= worth_waking()) room.notify_all();
    Slot& slot = slot_of(number);
    if (!slot.ready) {
      const Clock::time_point began = Clock::now();
      loaded.wait(lock, [&] { return slot.ready; });
      waited = std::chrono::duration<double>(Clock::now() - began).count();
    }
    return slot;
  }
};

Loader::Loader(const Dataset& dataset, Device& device, const LoaderOptions& options) {
  check(dataset, options);
  state_ = std::make_unique<State>(dataset, device, options);
  for (int i = 0; i < options.threads; ++i) {
    state_->workers.emplace_back([state = state_.get()] { state->work(); });
  }
}

Loader::~Loader() = default;

void Loader::start(int64_t epoch, int64_t position) {
  State& s = *state_;
  if (epoch < 0 || position < 0 || position > s.size) {
    throw Error(fmt::format("loader: cannot begin at sample {} of epoch {}; an epoch has {}",
                            position, epoch, s.size));
  }
  s.halt();
  {
    std::lock_guard lock(s.mutex);
    s.first_epoch = epoch;
    s.first_position = position;
    s.taken = 0;
    s.current = -1;
    for (Slot& slot : s.ring) slot.ready = false;
    s.running = true;
  }
  s.room.notify_all();
}

const Batch& Loader::next() {
  State& s = *state_;
  if (!s.running) throw Error("loader: next() before start()");
  s.waited = 0;
  // A batch that failed is not passed over.
  const bool failed = s.current >= 0 && s.slot_of(s.current).failure;
  const int64_t number = failed ? s.current : s.current + 1;
  Slot* slot = nullptr;
  if (s.workers.empty()) {
    const Clock::time_point began = Clock::now();
    slot = &s.slot_of(number);
    s.current = number;
    if (!failed) s.fill(number, *slot);
    s.waited = std::chrono::duration<double>(Clock::now() - began).count();
  } else {
    slot = &s.wait_for(number);
  }
  if (slot->failure) std::rethrow_exception(slot->failure);
  return slot->batch;
}

double Loader::wait_seconds() const { return state_->waited; }

int64_t Loader::batches_per_epoch() const {
  return ceil_div(state_->size, state_->options.global_batch);
}

}  // namespace trireme
