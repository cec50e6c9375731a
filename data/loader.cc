#include "data/loader.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/fault_point.h"
#include "data/sampler.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kTellEvery = std::chrono::milliseconds(250);

struct Slot {
  Batch batch;
  Buffer inputs;
  Buffer targets;
  int64_t used_rows = 0;  // that are not zero
  bool ready = false;
  std::exception_ptr failure;
};

// What a thread is reading, for others to see without stopping it.
struct Post {
  std::atomic<int64_t> batch{-1};  // -1: none
  std::atomic<int64_t> epoch{0};
  std::atomic<int64_t> sample{0};
  std::atomic<Clock::rep> since{0};

  void touch() { since.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed); }
  void begin(int64_t its_batch, int64_t its_epoch) {
    batch.store(its_batch, std::memory_order_relaxed);
    epoch.store(its_epoch, std::memory_order_relaxed);
    touch();
  }
};

std::string place_of(const Reading& reading) {
  std::string text = fmt::format("sample {} of epoch {}", reading.sample, reading.epoch + 1);
  return reading.where.empty() ? text : fmt::format("{} ({})", text, reading.where);
}

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
  const bool in_memory;
  std::vector<Slot> ring;
  std::vector<Post> posts;  // of each worker, or of next()
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
  int alive;
  std::vector<std::thread> workers;

  mutable std::mutex bad_mutex;
  BadRecordPolicy bad;
  const int64_t bad_when_opened;
  std::unordered_set<int64_t> left_out;

  State(const Dataset& from, Device& device, const LoaderOptions& given)
      : dataset(from),
        options(given),
        size(from.size()),
        input_bytes(from.spec().input.bytes()),
        target_bytes(from.spec().target.bytes()),
        in_memory(from.in_memory()),
        ring(static_cast<size_t>(given.threads == 0 ? 1 : given.depth)),
        posts(static_cast<size_t>(std::max(1, given.threads))),
        alive(given.threads),
        bad(given.max_bad_records),
        bad_when_opened(from.bad_records().count) {
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

  void fill(int64_t number, Slot& slot, Post& post) {
    Batch& batch = slot.batch;
    place(number, batch);
    slot.failure = nullptr;
    slot.used_rows = std::max(slot.used_rows, batch.rows);
    post.begin(number, batch.epoch);
    try {
      read_rows(batch, post);
    } catch (const abi::__forced_unwind&) {  // the thread is made to end, which Duty tells
      throw;
    } catch (const Error&) {
      slot.failure = std::current_exception();
    } catch (const std::exception& error) {
      slot.failure = failure_at(post, fmt::format("could not be read: {}", error.what()));
    } catch (...) {
      slot.failure = failure_at(post, "could not be read: an exception of an unknown kind");
    }
    post.batch.store(-1, std::memory_order_relaxed);
    if (slot.failure) return;
    if (slot.used_rows > batch.rows) {
      const auto from = static_cast<size_t>(batch.rows);
      const auto rows = static_cast<size_t>(slot.used_rows - batch.rows);
      std::memset(batch.inputs + from * input_bytes, 0, rows * input_bytes);
      std::memset(batch.targets + from * target_bytes, 0, rows * target_bytes);
    }
    slot.used_rows = batch.rows;
  }

  // Rows stay together where samples are left out.
  void read_rows(Batch& batch, Post& post) {
    const Permutation permutation(options.seed, static_cast<uint64_t>(batch.epoch), size);
    const int64_t begin = batch.position + batch.first_row;
    const int64_t share = std::exchange(batch.rows, 0);
    for (int64_t i = 0; i < share && !drop.load(std::memory_order_relaxed); ++i) {
      const int64_t index = options.shuffle ? permutation(begin + i) : begin + i;
      post.sample.store(index, std::memory_order_relaxed);
      if (!in_memory) post.touch();
      if (workers.empty() && options.progress && (i == 0 || !in_memory)) {
        options.progress(place_of(reading_of(post)));
      }
      if (read(index, batch)) ++batch.rows;
    }
  }

  // Appends the sample, unless it is to be left out.
  bool read(int64_t index, Batch& batch) {
    const auto row = static_cast<size_t>(batch.rows);
    try {
      if (fault_point("data", index)) throw DataError(dataset.where(index), "cannot be read");
      dataset.read(index, batch.inputs + row * input_bytes, batch.targets + row * target_bytes);
      return true;
    } catch (const DataError& error) {
      if (!bad.skips()) throw;
      leave_out(index, error);
      return false;
    }
  }

  void leave_out(int64_t index, const DataError& error) {
    std::lock_guard lock(bad_mutex);
    if (left_out.insert(index).second) bad.add(error);
    bad.check(dataset.description(), bad_when_opened);
  }

  Reading reading_of(const Post& post) const {
    Reading reading;
    reading.worker = workers.empty() ? -1 : static_cast<int>(&post - posts.data());
    reading.batch = post.batch.load(std::memory_order_relaxed);
    reading.epoch = post.epoch.load(std::memory_order_relaxed);
    reading.sample = post.sample.load(std::memory_order_relaxed);
    const Clock::duration since(post.since.load(std::memory_order_relaxed));
    reading.seconds =
        std::chrono::duration<double>(Clock::now().time_since_epoch() - since).count();
    reading.where = dataset.where(reading.sample);
    return reading;
  }

  std::exception_ptr failure_at(const Post& post, const std::string& what) const {
    return std::make_exception_ptr(DataError(place_of(reading_of(post)), what));
  }

  // A batch that a worker has taken on. However the worker leaves it, next() hears of it.
  class Duty {
   public:
    Duty(State& state, std::unique_lock<std::mutex>& lock, Post& post)
        : state_(state), lock_(lock), post_(post), number_(state.taken++) {
      ++state_.busy;
      lock_.unlock();
    }
    ~Duty() {
      Slot& slot = state_.slot_of(number_);
      if (!done_) {
        slot.failure = state_.failure_at(post_, "the thread that was reading it has ended");
      }
      lock_.lock();
      slot.ready = true;
      --state_.busy;
      if (!done_) --state_.alive;
      if (!done_ || number_ == state_.current || !state_.running) state_.loaded.notify_one();
    }
    Duty(const Duty&) = delete;
    Duty& operator=(const Duty&) = delete;

    void perform() {
      state_.fill(number_, state_.slot_of(number_), post_);
      done_ = true;
    }

   private:
    State& state_;
    std::unique_lock<std::mutex>& lock_;
    Post& post_;
    const int64_t number_;
    bool done_ = false;
  };

  void work(Post& post) {
    std::unique_lock lock(mutex);
    while (true) {
      if (!running || free_slots() < 1) {
        ++sleeping;
        room.wait(lock, [&] { return ending || (running && free_slots() >= worth_waking()); });
        --sleeping;
        if (ending) return;
      }
      Duty(*this, lock, post).perform();
    }
  }

  std::vector<Reading> readings() const {
    std::vector<Reading> out;
    if (workers.empty()) return out;
    for (const Post& post : posts) {
      if (post.batch.load(std::memory_order_relaxed) >= 0) out.push_back(reading_of(post));
    }
    return out;
  }

  // Tells what next() waits for.
  void tell(int64_t number) const {
    if (!options.progress) return;
    const std::vector<Reading> now = readings();
    const auto its = std::find_if(now.begin(), now.end(),
                                  [&](const Reading& reading) { return reading.batch == number; });
    options.progress(its == now.end() ? "a batch that no thread is reading" : to_string(*its));
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
      const auto over = [&] { return slot.ready || alive == 0; };
      while (!loaded.wait_for(lock, kTellEvery, over)) {
        lock.unlock();
        tell(number);
        lock.lock();
      }
      if (!slot.ready) throw Error("loader: all its threads have ended");
      waited = std::chrono::duration<double>(Clock::now() - began).count();
    }
    return slot;
  }
};

Loader::Loader(const Dataset& dataset, Device& device, const LoaderOptions& options) {
  check(dataset, options);
  state_ = std::make_unique<State>(dataset, device, options);
  for (int i = 0; i < options.threads; ++i) {
    state_->workers.emplace_back(
        [state = state_.get(), i] { state->work(state->posts[static_cast<size_t>(i)]); });
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
    if (!failed) s.fill(number, *slot, s.posts[0]);
    s.waited = std::chrono::duration<double>(Clock::now() - began).count();
  } else {
    slot = &s.wait_for(number);
  }
  if (slot->failure) std::rethrow_exception(slot->failure);
  return slot->batch;
}

double Loader::wait_seconds() const { return state_->waited; }

std::vector<Reading> Loader::readings() const { return state_->readings(); }

BadRecords Loader::bad_records() const {
  std::lock_guard lock(state_->bad_mutex);
  return state_->bad.found();
}

std::string to_string(const Reading& reading) {
  if (reading.worker < 0) return place_of(reading);
  return fmt::format("{}, which worker {} has been reading for {:.1f} s", place_of(reading),
                     reading.worker, reading.seconds);
}

int64_t Loader::batches_per_epoch() const {
  return ceil_div(state_->size, state_->options.global_batch);
}

}  // namespace trireme
