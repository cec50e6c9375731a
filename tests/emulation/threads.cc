#include "threads.h"

#include <fmt/format.h>

#include <bit>
#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernel.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace trireme::emulation {
namespace {

namespace context = boost::context;

constexpr uint32_t kWarp = 32;
constexpr size_t kStackBytes = 128 << 10;

// A random number generator (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
// OOPSLA 2014).
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed = 0) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t limit) { return next() % limit; }

 private:
  uint64_t state_;
};

// A permutation of 0..count-1: a random start and a random stride that is coprime to the count.
class Order {
 public:
  Order(uint64_t count, SplitMix64& random) : count_(count), next_(random.below(count)) {
    do stride_ = 1 + random.below(count);
    while (std::gcd(stride_, count) != 1);
  }
  uint64_t next() {
    const uint64_t now = next_;
    next_ += stride_;
    if (next_ >= count_) next_ -= count_;
    return now;
  }

 private:
  uint64_t count_, next_, stride_ = 1;
};

// Allocates a fiber's stack above a guard page. Each stack starts at another offset, because the
// tops of all stacks would otherwise compete for the same cache lines.
class Stack {
 public:
  explicit Stack(size_t number) : offset_(number * 320 % 4096) {}
  context::stack_context allocate() {
    context::stack_context all = pages_.allocate();
    all.sp = static_cast<char*>(all.sp) - offset_;
    all.size -= offset_;
    return all;
  }
  void deallocate(context::stack_context& stack) {
    stack.sp = static_cast<char*>(stack.sp) + offset_;
    stack.size += offset_;
    pages_.deallocate(stack);
  }

 private:
  size_t offset_;
  context::protected_fixedsize_stack pages_{kStackBytes};
};

// The suspended execution of a thread of the block, or of the function that started the block.
class Fiber {
 public:
  Fiber() = default;
  Fiber(void (*entry)(), size_t number)
      : stopped_(std::allocator_arg, Stack(number),
                 [entry](context::fiber&& from) -> context::fiber {
                   leaving->stopped_ = std::move(from);
                   entry();
                   std::abort();  // entries do not return
                 }) {}
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Suspends this fiber until another one switches back.
  void switch_to(Fiber& other) {
    leaving = this;
    context::fiber from = std::move(other.stopped_).resume();
    leaving->stopped_ = std::move(from);
  }

 private:
  static inline Fiber* leaving = nullptr;
  context::fiber stopped_;
};

std::string to_string(const std::source_location& where) {
  return fmt::format("{}:{}", where.file_name(), where.line());
}

bool same(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

// Runs the blocks of a kernel sequentially.
class Multiprocessor {
 public:
  void run(const Shape& shape, const std::function<void()>& body, uint64_t seed);
  int sync_threads(bool predicate, const std::source_location& where);
  uint64_t collect(uint32_t mask, uint64_t value, uint32_t source, bool is_ballot,
                   const std::source_location& where);
  uint32_t lane() const { return current_ % kWarp; }
  void* shared_memory() { return shared_.data(); }
  [[noreturn]] void work();  // entry of each fiber

 private:
  struct Thread {
    uint3 index;
    Fiber* fiber;  // in which it is suspended
    // The warp-level operation that it waits for.
    uint32_t mask, source;
    uint64_t value, result;
    bool is_ballot;
    std::source_location where;
  };
  struct Warp {
    uint32_t present, returned, waiting;  // lanes
  };

  void start(const Shape& shape);
  void run_block();
  void finish_thread();
  bool complete_collective(uint32_t warp, uint32_t mask, uint32_t arriving);
  bool complete_barrier(uint32_t arriving);
  void wait();
  Fiber& other_fiber();
  Fiber& idle_fiber();
  [[noreturn]] void fail(const std::string& message);
  [[noreturn]] void fail_with_deadlock();

  SplitMix64 random_;
  const std::function<void()>* body_ = nullptr;
  uint32_t count_ = 0;  // number of threads in a block
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<std::max_align_t> shared_;

  Fiber main_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::vector<uint32_t> ready_;  // runnable threads, from ready_head_ on
  size_t ready_head_ = 0;
  Order order_{1, random_};
  uint32_t started_ = 0, returned_ = 0;
  uint32_t current_ = 0;
  Fiber* fiber_ = nullptr;  // running fiber

  std::vector<uint32_t> at_barrier_;
  std::source_location barrier_where_;
  int votes_ = 0, barrier_result_ = 0;

  std::string failure_;
};

Multiprocessor& multiprocessor() {
  // Never destroyed, because threads may use it until the end.
  static auto* const only = new Multiprocessor;
  return *only;
}

void Multiprocessor::start(const Shape& shape) {
  count_ = shape.threads.x * shape.threads.y * shape.threads.z;
  threads_.resize(count_);
  for (uint32_t i = 0; i < count_; ++i) {
    threads_[i].index = {i % shape.threads.x, i / shape.threads.x % shape.threads.y,
                         i / (shape.threads.x * shape.threads.y)};
  }
  warps_.resize((count_ + kWarp - 1) / kWarp);
  shared_.resize(shape.shared_bytes / sizeof(std::max_align_t) + 1);
  blockDim = shape.threads;
  gridDim = shape.blocks;
}

void Multiprocessor::run(const Shape& shape, const std::function<void()>& body, uint64_t seed) {
  random_ = SplitMix64(seed);
  body_ = &body;
  start(shape);
  const uint64_t x = shape.blocks.x, y = shape.blocks.y;
  const uint64_t blocks = x * y * shape.blocks.z;
  Order order(blocks, random_);
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t block = order.next();
    blockIdx = {static_cast<uint32_t>(block % x), static_cast<uint32_t>(block / x % y),
                static_cast<uint32_t>(block / (x * y))};
    run_block();
    if (!failure_.empty()) throw std::runtime_error(std::exchange(failure_, {}));
  }
}

void Multiprocessor::run_block() {
  for (uint32_t i = 0; i < warps_.size(); ++i) {
    const uint32_t lanes = std::min(kWarp, count_ - i * kWarp);
    warps_[i] = {lanes == kWarp ? ~0u : (1u << lanes) - 1, 0, 0};
  }
  std::memset(shared_.data(), 0xFF, shared_.size() * sizeof(shared_[0]));
  order_ = Order(count_, random_);
  started_ = returned_ = 0;
  votes_ = 0;
  at_barrier_.clear();
  ready_.clear();
  ready_head_ = 0;
  Fiber& first = idle_fiber();
  fiber_ = &first;
  main_.switch_to(first);
  if (failure_.empty()) return;
  idle_.clear();
  fibers_.clear();
}

void Multiprocessor::work() {
  for (;;) {
    ++started_;
    current_ = static_cast<uint32_t>(order_.next());
    threadIdx = threads_[current_].index;
    (*body_)();
    finish_thread();
    const bool ready = ready_head_ < ready_.size();
    if (started_ < count_ && (!ready || random_.below(2))) continue;
    Fiber& self = *fiber_;
    idle_.push_back(&self);
    if (ready) {
      Fiber& other = other_fiber();
      if (&other == &self) continue;
      fiber_ = &other;
      self.switch_to(other);
    } else if (returned_ == count_) {
      self.switch_to(main_);
    } else {
      fail_with_deadlock();
    }
  }
}

void Multiprocessor::finish_thread() {
  ++returned_;
  const uint32_t number = current_ / kWarp;
  Warp& warp = warps_[number];
  warp.returned |= 1u << (current_ % kWarp);
  for (uint32_t left = warp.waiting; left;) {
    const uint32_t waiting = number * kWarp + static_cast<uint32_t>(std::countr_zero(left));
    left &= left - 1;
    if (complete_collective(number, threads_[waiting].mask, ~0u)) left &= warp.waiting;
  }
  if (!at_barrier_.empty()) complete_barrier(~0u);
}

Fiber& Multiprocessor::idle_fiber() {
  if (idle_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(
        +[] { multiprocessor().work(); }, fibers_.size()));
    idle_.push_back(fibers_.back().get());
  }
  Fiber& fiber = *idle_.back();
  idle_.pop_back();
  return fiber;
}

// Returns the fiber to run while the current thread waits: one that is ready, or a new one.
Fiber& Multiprocessor::other_fiber() {
  const bool ready = ready_head_ < ready_.size();
  if (started_ < count_ && (!ready || random_.below(2))) return idle_fiber();
  if (!ready) fail_with_deadlock();
  Fiber& fiber = *threads_[ready_[ready_head_++]].fiber;
  if (ready_head_ == ready_.size()) {
    ready_.clear();
    ready_head_ = 0;
  }
  return fiber;
}

void Multiprocessor::wait() {
  const uint32_t self = current_;
  Fiber& fiber = *fiber_;
  threads_[self].fiber = &fiber;
  Fiber& other = other_fiber();
  fiber_ = &other;
  fiber.switch_to(other);
  current_ = self;
  threadIdx = threads_[self].index;
}

int Multiprocessor::sync_threads(bool predicate, const std::source_location& where) {
  if (at_barrier_.empty()) {
    barrier_where_ = where;
  } else if (!same(where, barrier_where_)) {
    fail(fmt::format("some threads of a block are at the barrier of {}, others at that of {}",
                     to_string(barrier_where_), to_string(where)));
  }
  at_barrier_.push_back(current_);
  votes_ += predicate;
  if (!complete_barrier(current_)) wait();
  return barrier_result_;
}

bool Multiprocessor::complete_barrier(uint32_t arriving) {
  if (at_barrier_.size() + returned_ < count_) return false;
  // The barrier requires converged warps (PTX: barrier.sync.aligned).
  for (const Warp& warp : warps_) {
    if (warp.returned && warp.returned != warp.present) {
      fail(fmt::format("some threads of a warp are at the barrier of {}, others have returned",
                       to_string(barrier_where_)));
    }
  }
  Order order(at_barrier_.size(), random_);
  for (size_t i = 0; i < at_barrier_.size(); ++i) {
    const uint32_t thread = at_barrier_[order.next()];
    if (thread != arriving) ready_.push_back(thread);
  }
  at_barrier_.clear();
  barrier_result_ = std::exchange(votes_, 0);
  return true;
}

uint64_t Multiprocessor::collect(uint32_t mask, uint64_t value, uint32_t source, bool is_ballot,
                                 const std::source_location& where) {
  Thread& self = threads_[current_];
  const uint32_t number = current_ / kWarp;
  const uint32_t bit = 1u << lane();
  if (!(mask & bit)) {
    fail(fmt::format("lane {} is not in the mask {:#x} that it passes at {}", lane(), mask,
                     to_string(where)));
  }
  self.mask = mask;
  self.value = value;
  self.source = source;
  self.is_ballot = is_ballot;
  self.where = where;
  warps_[number].waiting |= bit;
  if (!complete_collective(number, mask, current_)) wait();
  return self.result;
}

// Completes the operation if every lane of the mask has arrived. Lanes that have returned or do not
// exist are not waited for. Returns false if lanes are missing.
bool Multiprocessor::complete_collective(uint32_t number, uint32_t mask, uint32_t arriving) {
  Warp& warp = warps_[number];
  const uint32_t lanes = mask & warp.present & ~warp.returned;
  if (lanes & ~warp.waiting) return false;
  Thread* const threads = &threads_[number * kWarp];
  const Thread& first = threads[std::countr_zero(lanes)];
  uint32_t votes = 0;
  for (uint32_t left = lanes; left; left &= left - 1) {
    const int i = std::countr_zero(left);
    const Thread& thread = threads[i];
    if (thread.mask != mask || !same(thread.where, first.where)) {
      fail(fmt::format("lanes of a warp meet at {} with the mask {:#x} and at {} with {:#x}",
                       to_string(first.where), first.mask, to_string(thread.where), thread.mask));
    }
    if (thread.value) votes |= 1u << i;
  }
  const uint32_t turn = static_cast<uint32_t>(random_.below(kWarp));
  for (uint32_t left = std::rotr(lanes, static_cast<int>(turn)); left; left &= left - 1) {
    const uint32_t i = (static_cast<uint32_t>(std::countr_zero(left)) + turn) % kWarp;
    Thread& thread = threads[i];
    const bool given = lanes >> thread.source & 1;
    thread.result = thread.is_ballot ? votes : given ? threads[thread.source].value : ~uint64_t{0};
    if (number * kWarp + i != arriving) ready_.push_back(number * kWarp + i);
  }
  warp.waiting &= ~lanes;
  return true;
}

void Multiprocessor::fail(const std::string& message) {
  failure_ = fmt::format("{} (block {},{},{} thread {},{},{})", message, blockIdx.x, blockIdx.y,
                         blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
  fiber_->switch_to(main_);
  std::abort();  // nothing runs after a failure
}

void Multiprocessor::fail_with_deadlock() {
  std::string message = fmt::format("of {} threads {} have returned", count_, returned_);
  if (!at_barrier_.empty()) {
    message += fmt::format(", {} wait at the barrier of {}", at_barrier_.size(),
                           to_string(barrier_where_));
  }
  for (size_t i = 0; i < warps_.size(); ++i) {
    if (!warps_[i].waiting) continue;
    const auto waiting = static_cast<size_t>(std::countr_zero(warps_[i].waiting));
    message += fmt::format(", lanes {:#x} of warp {} wait at {}", warps_[i].waiting, i,
                           to_string(threads_[i * kWarp + waiting].where));
  }
  fail(message);
}

}  // namespace

void run_kernel(const Shape& shape, const std::function<void()>& thread, uint64_t seed) {
  multiprocessor().run(shape, thread, seed);
}

int sync_threads(bool predicate, const std::source_location& where) {
  return multiprocessor().sync_threads(predicate, where);
}

uint64_t exchange(uint32_t mask, uint64_t value, uint32_t source,
                  const std::source_location& where) {
  return multiprocessor().collect(mask, value, source, false, where);
}

uint32_t ballot(uint32_t mask, bool predicate, const std::source_location& where) {
  return static_cast<uint32_t>(multiprocessor().collect(mask, predicate, 0, true, where));
}

uint32_t lane() { return multiprocessor().lane(); }

void* dynamic_shared_memory() { return multiprocessor().shared_memory(); }

}  // namespace trireme::emulation
