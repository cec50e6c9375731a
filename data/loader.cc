#include "data/loader.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "data/loader/journal.h"
#include "data/loader/placement.h"
#include "data/loader/reader.h"
#include "data/loader/slot.h"
#include "data/loader/worker_status.h"
#include "data/sampler.h"

namespace trireme::data {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kReportInterval = std::chrono::milliseconds(250);

void check(const Dataset& dataset, const LoaderOptions& options) {
  if (dataset.size() < 1) throw Error("loader: no samples in " + dataset.description());
  if (options.global_batch < 1 || options.ranks < 1 || options.rank < 0 ||
      options.rank >= options.ranks || options.threads < 0 || options.depth < 1) {
    throw Error(fmt::format(
        "loader: invalid options: rank {} of {}, global batch {}, {} threads, depth {}",
        options.rank, options.ranks, options.global_batch, options.threads, options.depth));
  }
  if (!options.reads && options.max_bad_records) {
    throw Error("loader: bad records cannot be skipped without reading them");
  }
  const int64_t streams = options.order.streams;
  if (streams > 0 && (streams != options.global_batch || options.max_bad_records)) {
    throw Error(fmt::format("loader: {} streams require batches of {} rows, none of them skipped",
                            streams, streams));
  }
  const int64_t full = streams > 0 ? streams : std::min(options.global_batch, dataset.size());
  const int64_t rows = share_of(full, options.rank, options.ranks).rows;
  if (options.capacity < std::max<int64_t>(rows, 1)) {
    throw Error(fmt::format("loader: batches have room for {} rows; rank {} of {} gets {} of {}",
                            options.capacity, options.rank, options.ranks, rows, full));
  }
}

}  // namespace

// Batches are numbered from start(). Batch n occupies slot n % depth from the time when a worker
// takes its first unit of work until next() has moved past it.
struct Loader::State {
  const Dataset& dataset;
  const LoaderOptions options;
  Placement placement;
  // Workers that found the ring full sleep until this many batches are free: half the ring if
  // reading is only copying, since waking a thread then costs more than loading a small batch.
  const int64_t wake_threshold;
  std::vector<Slot> ring;
  std::vector<WorkerStatus> statuses;  // one per worker, or one for next()
  Journal journal;
  double waited = 0;

  std::mutex mutex;
  std::condition_variable room;    // wakes workers: there is something to load
  std::condition_variable loaded;  // wakes next() and halt(): a worker has finished a unit
  bool running = false;            // between start() and halt(); workers take units
  bool ending = false;
  std::atomic<bool> drop = false;  // abandon the units that are being loaded
  int64_t batch_taken = 0;         // batch of the next unit to load
  int unit_taken = 0;              // index of that unit in its batch
  int64_t current = -1;            // the batch that next() returned or waits for
  int busy = 0;                    // workers that are loading a unit
  int sleeping = 0;                // workers that wait for room
  int alive;                       // workers that have not ended
  std::vector<std::thread> workers;
  std::vector<UnitReader> readers;  // one per status

  BadRecordPolicy bad;
  const int64_t bad_when_opened;
  std::unordered_set<int64_t> skipped;           // samples, in any epoch
  std::unordered_set<int64_t> skipped_in_epoch;  // in that of the last skipped sample
  int64_t epoch_of_skipped = -1;

  State(const Dataset& from, Device& device, const LoaderOptions& given)
      : dataset(from),
        options(given),
        placement(given, from.size(), rows_per_unit(given, from.in_memory())),
        wake_threshold(from.in_memory() ? std::max(1, given.depth / 2) : 1),
        ring(given.threads == 0 ? 1 : given.depth),
        statuses(std::max(1, given.threads)),
        alive(given.threads),
        bad(given.max_bad_records),
        bad_when_opened(from.bad_records().count) {
    for (Slot& slot : ring) slot.allocate(device, options.capacity, dataset.spec(), options.reads);
    readers.reserve(statuses.size());
    for (WorkerStatus& status : statuses) {
      const int worker = options.threads == 0 ? -1 : static_cast<int>(readers.size());
      readers.emplace_back(dataset, options, worker, status, drop);
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

  Slot& slot_of(int64_t number) { return ring[number % ring.size()]; }

  // Returns true if there is a unit to load, of a started batch or of one for which there is room.
  bool has_work(int64_t free_batches = 1) const {
    const int64_t limit = std::max<int64_t>(current, 0) + static_cast<int64_t>(ring.size());
    return running && (unit_taken > 0 || batch_taken + free_batches <= limit);
  }

  void begin(Slot& slot, int64_t number) const {
    placement.place(number, slot.batch);
    slot.begin(number, placement.units(slot.batch));
  }

  // A unit of work that a worker has claimed. Its destructor notifies next() in every case, even if
  // the thread ends while reading.
  class ClaimedUnit {
   public:
    ClaimedUnit(State& state, std::unique_lock<std::mutex>& lock, int worker)
        : state_(state),
          lock_(lock),
          worker_(worker),
          reader_(state.readers[worker]),
          slot_(state.slot_of(state.batch_taken)),
          unit_(state.unit_taken) {
      if (unit_ == 0) state.begin(slot_, state.batch_taken);
      if (++state.unit_taken == slot_.units) ++state.batch_taken, state.unit_taken = 0;
      ++state.busy;
      lock_.unlock();
    }
    ~ClaimedUnit() {
      if (!done_) reader_.thread_ended(slot_);
      lock_.lock();
      --slot_.units_left;
      --state_.busy;
      if (!done_) --state_.alive;
      const bool wanted = slot_.units_left == 0 && slot_.number == state_.current;
      if (!done_ || wanted || !state_.running) state_.loaded.notify_one();
    }
    ClaimedUnit(const ClaimedUnit&) = delete;
    ClaimedUnit& operator=(const ClaimedUnit&) = delete;

    void load() {
      const Rows rows = state_.placement.unit(slot_.batch, unit_);
      const bool recording = state_.journal.enabled();
      const Clock::time_point began = recording ? Clock::now() : Clock::time_point();
      reader_.read(slot_, rows);
      done_ = true;
      if (recording) {
        state_.journal.add({worker_, slot_.batch.epoch, slot_.batch.position + rows.begin,
                            rows.end - rows.begin, began, Clock::now()});
      }
    }

   private:
    State& state_;
    std::unique_lock<std::mutex>& lock_;
    const int worker_;
    UnitReader& reader_;
    Slot& slot_;
    const int unit_;
    bool done_ = false;
  };

  void work(int index) {
    pthread_setname_np(pthread_self(), fmt::format("data-{}", index).c_str());
    std::unique_lock lock(mutex);
    while (true) {
      if (!has_work()) {
        ++sleeping;
        room.wait(lock, [&] { return ending || has_work(wake_threshold); });
        --sleeping;
        if (ending) return;
      }
      ClaimedUnit(*this, lock, index).load();
    }
  }

  std::vector<Reading> readings() const {
    std::vector<Reading> out;
    for (int i = 0; i < std::ssize(workers); ++i) {
      const WorkerStatus& status = statuses[i];
      if (status.is_reading()) out.push_back(status.reading(i, dataset));
    }
    return out;
  }

  // Reports the sample of batch `number` that has been read for the longest time.
  void report_wait(int64_t number) const {
    if (!options.progress) return;
    const std::vector<Reading> now = readings();
    const Reading* longest = nullptr;
    for (const Reading& reading : now) {
      if (reading.batch != number) continue;
      if (!longest || reading.seconds > longest->seconds) longest = &reading;
    }
    options.progress(longest ? to_string(*longest) : "a batch that no worker is reading");
  }

  // Stops loading. Afterwards no worker accesses the ring.
  void halt() {
    std::unique_lock lock(mutex);
    running = false;
    drop = true;
    loaded.wait(lock, [&] { return busy == 0; });
    drop = false;
  }

  Slot& wait_for(int64_t number) {
    std::unique_lock lock(mutex);
    current = number;
    if (sleeping > 0 && has_work(wake_threshold)) room.notify_all();
    Slot& slot = slot_of(number);
    const auto ready = [&] { return slot.number == number && slot.units_left == 0; };
    if (ready()) return slot;
    const Clock::time_point began = Clock::now();
    while (!loaded.wait_for(lock, kReportInterval, [&] { return ready() || alive == 0; })) {
      lock.unlock();
      report_wait(number);
      lock.lock();
    }
    // The last thread may have recorded a fault that explains why it ended.
    const bool has_fault = slot.number == number && !slot.faults().empty();
    if (!ready() && !has_fault) throw Error("loader: all worker threads have ended");
    waited = std::chrono::duration<double>(Clock::now() - began).count();
    return slot;
  }

  Slot& load(int64_t number) {
    const Clock::time_point began = Clock::now();
    current = number;
    Slot& slot = slot_of(number);
    begin(slot, number);
    for (int unit = 0; unit < slot.units; ++unit) {
      readers[0].read(slot, placement.unit(slot.batch, unit));
    }
    waited = std::chrono::duration<double>(Clock::now() - began).count();
    return slot;
  }

  // Handles the faults of a batch in the order of its rows, so that the result does not depend on
  // which thread was faster: skips bad records within the limit, and otherwise sets slot.failure.
  void handle_faults(Slot& slot) {
    try {
      for (const RowFault& fault : slot.faults()) {
        if (!fault.is_bad_record) std::rethrow_exception(fault.error);
        skip(fault, slot.batch.epoch);
      }
    } catch (...) {
      slot.failure = std::current_exception();
      return;
    }
    slot.remove_faulty_rows();
    slot.shorten_rows();
  }

  void skip(const RowFault& fault, int64_t epoch) {
    if (epoch != std::exchange(epoch_of_skipped, epoch)) skipped_in_epoch.clear();
    skipped_in_epoch.insert(fault.sample);
    if (skipped.insert(fault.sample).second) {
      try {
        std::rethrow_exception(fault.error);
      } catch (const DataError& error) {
        bad.add(error);
      }
    }
    const int64_t count = bad_when_opened + std::ssize(skipped_in_epoch);
    if (count <= *options.max_bad_records) return;
    throw DataError(dataset.description(), too_many_bad_records(count, *options.max_bad_records,
                                                                bad.found().first.front()));
  }
};

Loader::Loader(const Dataset& dataset, Device& device, const LoaderOptions& options) {
  check(dataset, options);
  state_ = std::make_unique<State>(dataset, device, options);
  for (int i = 0; i < options.threads; ++i) {
    state_->workers.emplace_back([state = state_.get(), i] { state->work(i); });
  }
}

Loader::~Loader() = default;

void Loader::start(int64_t epoch, int64_t position) {
  State& s = *state_;
  if (epoch < 0 || position < 0 || position > s.dataset.size()) {
    throw Error(
        fmt::format("loader: cannot start at sample {} of epoch {}; an epoch has {} samples",
                    position, epoch, s.dataset.size()));
  }
  const int64_t streams = s.options.order.streams;
  if (streams > 0 && position < s.dataset.size() && position % streams != 0) {
    throw Error(
        fmt::format("loader: cannot start at sample {} with {} streams", position, streams));
  }
  s.halt();
  {
    std::lock_guard lock(s.mutex);
    s.placement.start(epoch, position);
    s.batch_taken = 0;
    s.unit_taken = 0;
    s.current = -1;
    for (Slot& slot : s.ring) slot.clear();
    s.running = true;
  }
  s.room.notify_all();
}

const Batch& Loader::next() {
  State& s = *state_;
  if (!s.running) throw Error("loader: next() before start()");
  s.waited = 0;
  if (s.current >= 0) {  // next() does not move past a failed batch
    if (const auto failure = s.slot_of(s.current).failure) std::rethrow_exception(failure);
  }
  Slot& slot = s.workers.empty() ? s.load(s.current + 1) : s.wait_for(s.current + 1);
  s.handle_faults(slot);
  if (slot.failure) std::rethrow_exception(slot.failure);
  return slot.batch;
}

std::optional<int64_t> Loader::max_bad_records() const { return state_->options.max_bad_records; }

double Loader::wait_seconds() const { return state_->waited; }

std::vector<Reading> Loader::readings() const { return state_->readings(); }

void Loader::enable_journal(bool on) { state_->journal.set_enabled(on); }

std::vector<ReadRows> Loader::take_journal() { return state_->journal.take(); }

BadRecords Loader::bad_records() const { return state_->bad.found(); }

std::string to_string(const Reading& reading) {
  if (reading.worker < 0) return describe_position(reading);
  return fmt::format("{}, which worker {} has been reading for {:.1f} s",
                     describe_position(reading), reading.worker, reading.seconds);
}

int64_t Loader::batches_per_epoch() const { return state_->placement.batches_per_epoch(); }

}  // namespace trireme::data
