// Tasks that threads work on independently, each thread with scratch memory of its own.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "core/alignment.h"
#include "core/parallel.h"

namespace trireme::ops::cpu {

// Scratch memory of a thread, a part after the other.
class Parts {
 public:
  // The bytes of all parts, each aligned.
  explicit Parts(std::initializer_list<size_t> bytes) {
    for (size_t size : bytes) {
      offsets_.push_back(total_);
      total_ += device_aligned(size);
    }
  }
  size_t total() const { return total_; }
  template <class T>
  T* at(void* scratch, int64_t thread, size_t part) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(scratch) +
                                static_cast<size_t>(thread) * total_ + offsets_[part]);
  }

 private:
  std::vector<size_t> offsets_;
  size_t total_ = 0;
};

inline int64_t threads_for(int64_t tasks) {
  return std::min<int64_t>(tasks, omp_get_max_threads());
}

// Calls f(thread, task) for every task.
template <class F>
void each_task(int64_t tasks, int64_t threads, F f) {
  parallel_for(threads, [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread) {
      for (int64_t task = thread; task < tasks; task += threads) f(thread, task);
    }
  });
}

}  // namespace trireme::ops::cpu
