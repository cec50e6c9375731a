// The emulated GPU: its queued work and the thread that runs it. The functions of the CUDA runtime
// (runtime.cc) are based on it.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "memory.h"

namespace trireme::emulation {

using Clock = std::chrono::steady_clock;

// A piece of work.
struct Work {
  std::string name;
  std::function<void()> run = {};  // may be empty
  // Whether it may wait for other ranks. If so, it runs concurrently with work that does not.
  bool communicates = false;
};

// A piece of queued work.
struct Node {
  Work work;
  cudaStream_t stream;
  std::vector<std::shared_ptr<Node>> after = {};  // nodes that wait for this one
  uint64_t number = 0;                            // in the order of the calls
  int unmet = 0;                                  // number of nodes that this one waits for
  bool done = false;
};
using NodePtr = std::shared_ptr<Node>;

struct EventState;
struct GraphNode {
  Work work;
  cudaStream_t stream;
  std::vector<size_t> before;
  std::shared_ptr<EventState> records;  // external event that the node records
};
using Graph = std::vector<GraphNode>;

struct Capture {
  cudaStream_t origin;
  std::thread::id thread;
  bool strict;  // forbids calls of this thread that may block
  cudaError_t broken = cudaSuccess;
  bool ended = false;
  Graph graph = {};
};
using CapturePtr = std::shared_ptr<Capture>;

struct StreamState {
  int device;
  NodePtr last = {};
  CapturePtr capture = {};
  std::vector<size_t> front = {};  // graph nodes that the next node depends on
};

struct EventState {
  int device;
  bool timed;
  NodePtr node = {};      // node of the latest record
  bool in_graph = false;  // the latest record is in a graph
  Clock::time_point time = {};
  CapturePtr capture = {};  // capture in which it was recorded last
  std::vector<size_t> front = {};
};

struct Executable {
  Graph graph = {};
  NodePtr last = {};
};

// State of the calling thread.
inline thread_local int current_device = 0;
inline thread_local cudaError_t latest_error = cudaSuccess;
inline thread_local std::vector<std::weak_ptr<Capture>> captures_of_thread;

// A table from handles, which are never reused, to their objects.
template <class Handle, class State>
class Table {
 public:
  Handle add(std::shared_ptr<State> state) {
    const auto handle = reinterpret_cast<Handle>(next_);
    next_ += 16;
    states_[handle] = std::move(state);
    return handle;
  }
  std::shared_ptr<State> find(Handle handle) const {
    const auto found = states_.find(handle);
    return found == states_.end() ? nullptr : found->second;
  }
  bool remove(Handle handle) { return states_.erase(handle) > 0; }
  auto begin() const { return states_.begin(); }
  auto end() const { return states_.end(); }

 private:
  uintptr_t next_ = 0x1000;
  std::unordered_map<Handle, std::shared_ptr<State>> states_;
};

struct Failure {
  cudaError_t error;
};
inline void require(bool holds, cudaError_t error) {
  if (!holds) throw Failure{error};
}

// The emulated GPU, protected by one mutex. One thread runs its work without holding the mutex, and
// another one the work that communicates, of which it runs a single piece at a time.
class Gpu {
 public:
  Gpu();

  // Runs `body`. Returns the error of its Failure, or that of an earlier failure of the GPU.
  template <class F>
  cudaError_t call(F body) {
    std::unique_lock lock(mutex_);
    cudaError_t result = failed_;
    if (result == cudaSuccess) {
      try {
        body(lock);
        result = failed_;
      } catch (const Failure& failure) {
        result = failure.error;
      }
    }
    if (result != cudaSuccess) latest_error = result;
    return result;
  }

  StreamState& stream(cudaStream_t handle) {
    const auto found = streams.find(handle);
    require(found != nullptr, cudaErrorInvalidResourceHandle);
    return *found;
  }
  std::shared_ptr<EventState> event(cudaEvent_t handle) {
    const auto found = events.find(handle);
    require(found != nullptr, cudaErrorInvalidResourceHandle);
    return found;
  }

  void submit(cudaStream_t stream, Work work, std::shared_ptr<EventState> records = nullptr);
  NodePtr queue(cudaStream_t stream, Work work, std::vector<NodePtr> before);
  void wait(std::unique_lock<std::mutex>& lock, NodePtr node);
  void wait_all(std::unique_lock<std::mutex>& lock);
  void forbid_in_capture();

  void begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode);
  Graph end_capture(cudaStream_t stream);
  void launch_graph(Executable& executable, cudaStream_t stream);

  void set_seed(uint64_t seed);
  void recover();
  const char* failure_text() const { return failure_text_.c_str(); }
  cudaError_t failed() const { return failed_; }

  Memory memory;
  Table<cudaStream_t, StreamState> streams;
  Table<cudaEvent_t, EventState> events;
  Table<cudaGraph_t, Graph> graphs;
  Table<cudaGraphExec_t, Executable> executables;

 private:
  void compute();
  void communicate();
  bool wanted() const;
  bool can_start(const NodePtr& node) const;
  bool can_start_any() const;
  NodePtr choose();
  void run(std::unique_lock<std::mutex>& lock, const NodePtr& node);
  void finish(const NodePtr& node);

  std::mutex mutex_;
  std::condition_variable wanted_, done_, communicates_;
  std::vector<NodePtr> ready_, targets_;
  NodePtr communicating_;  // what the second thread runs; null if nothing
  size_t pending_ = 0;     // nodes
  int waiting_for_all_ = 0;
  uint64_t queued_ = 0;    // nodes so far
  bool in_order_ = false;  // runs one node after the other, in the order of the calls
  std::mt19937_64 random_;
  std::unordered_map<cudaStream_t, uint64_t> priorities_;
  cudaError_t failed_ = cudaSuccess;
  std::string failure_text_;
};

Gpu& gpu();
// Returns a seed for the node that is running.
uint64_t seed_of_node();

}  // namespace trireme::emulation
