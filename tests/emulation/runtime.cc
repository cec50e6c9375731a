// The functions of the CUDA runtime that Trireme calls, over the memory of the host.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulation.h"
#include "memory.h"

namespace trireme::emulation {
namespace {

using Clock = std::chrono::steady_clock;

// Work on its way to the GPU.
struct Node {
  std::string name;
  std::function<void()> work;
  cudaStream_t stream;
  std::vector<std::shared_ptr<Node>> after;  // wait for this one
  int unmet = 0;                             // that this one waits for
  bool done = false;
};
using NodePtr = std::shared_ptr<Node>;

struct EventState;
struct GraphNode {
  std::string name;
  std::function<void()> work;
  cudaStream_t stream;
  std::vector<size_t> before;
  std::shared_ptr<EventState> records;  // an external event
};
using Graph = std::vector<GraphNode>;

struct Capture {
  cudaStream_t origin;
  std::thread::id thread;
  bool strict;  // forbids calls of this thread that might wait
  cudaError_t broken = cudaSuccess;
  bool ended = false;
  Graph graph;
};
using CapturePtr = std::shared_ptr<Capture>;

struct StreamState {
  int device;
  NodePtr last;
  CapturePtr capture;
  std::vector<size_t> front;  // of the graph: what the next node comes after
};

struct EventState {
  int device;
  bool timed;
  NodePtr node;  // of the latest record
  Clock::time_point time;
  CapturePtr capture;  // in which it was recorded last
  std::vector<size_t> front;
};

struct Executable {
  Graph graph;
  NodePtr last;
};

int device_count() {
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"); visible && !*visible) return 0;
  const char* count = std::getenv("TRIREME_EMULATION_DEVICES");
  return count ? std::atoi(count) : 1;
}

thread_local int current_device = 0;
thread_local cudaError_t latest_error = cudaSuccess;
thread_local std::vector<std::weak_ptr<Capture>> captures_of_thread;
thread_local bool is_gpu = false;  // the thread on which the GPU's work is done

uint64_t seed_of_node = 0;  // for what the GPU does now

// A table from handles, which are never used twice, to what they stand for.
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
void require(bool holds, cudaError_t error) {
  if (!holds) throw Failure{error};
}

// Everything, behind one mutex. Work is done by one thread, with the mutex free.
class Gpu {
 public:
  Gpu();

  // Runs `call`; its Failure, or the one that has befallen the GPU, is the result.
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

  void submit(cudaStream_t stream, std::string name, std::function<void()> work,
              std::shared_ptr<EventState> records = nullptr);
  NodePtr queue(cudaStream_t stream, std::string name, std::function<void()> work,
                std::vector<NodePtr> before);
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
  void work();
  bool wanted() const;
  NodePtr choose();
  void finish(const NodePtr& node);

  std::mutex mutex_;
  std::condition_variable wanted_, done_;
  std::vector<NodePtr> ready_, targets_;
  size_t pending_ = 0;  // nodes
  int waiting_for_all_ = 0;
  std::mt19937_64 dice_;
  std::unordered_map<cudaStream_t, uint64_t> priorities_;
  cudaError_t failed_ = cudaSuccess;
  std::string failure_text_;
};

Gpu& gpu() {
  static auto* const only = new Gpu;  // lives as long as any thread might use it
  return *only;
}

// --- What a bad access says ---

std::atomic<const char*> running = nullptr;  // the name of the node

void on_bad_access(int signal, siginfo_t* info, void*) {
  char text[256];
  const char* name = running;
  const auto end =
      is_gpu
          ? fmt::format_to_n(text, sizeof(text) - 1,
                             "emulation: {} touched {}, which is no memory\n", name ? name : "?",
                             info->si_addr)
          : fmt::format_to_n(text, sizeof(text) - 1,
                             "emulation: the host touched {}, which may be memory of the device\n",
                             info->si_addr);
  [[maybe_unused]] const auto written =
      write(STDERR_FILENO, text, static_cast<size_t>(end.out - text));
  ::signal(signal, SIG_DFL);
}

void explain_bad_accesses() {
  struct sigaction before, action{};
  sigaction(SIGSEGV, nullptr, &before);
  if (before.sa_handler != SIG_DFL) return;  // of a sanitizer
  action.sa_sigaction = on_bad_access;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
}

// --- Doing the work ---

Gpu::Gpu() {
  const char* seed = std::getenv("TRIREME_EMULATION_SEED");
  dice_.seed(seed ? std::strtoull(seed, nullptr, 10) : 1);
  explain_bad_accesses();
  std::thread([this] { work(); }).detach();
}

void Gpu::submit(cudaStream_t handle, std::string name, std::function<void()> work,
                 std::shared_ptr<EventState> records) {
  StreamState& to = stream(handle);
  if (!to.capture) {
    to.last = queue(handle, std::move(name), std::move(work), {to.last});
    if (records) records->node = to.last;
    return;
  }
  Graph& graph = to.capture->graph;
  graph.push_back({std::move(name), std::move(work), handle, to.front, std::move(records)});
  to.front = {graph.size() - 1};
}

NodePtr Gpu::queue(cudaStream_t stream, std::string name, std::function<void()> work,
                   std::vector<NodePtr> before) {
  auto node = std::make_shared<Node>(std::move(name), std::move(work), stream);
  for (const NodePtr& other : before) {
    if (!other || other->done) continue;
    other->after.push_back(node);
    ++node->unmet;
  }
  ++pending_;
  if (node->unmet == 0) ready_.push_back(node);
  return node;
}

void Gpu::wait(std::unique_lock<std::mutex>& lock, NodePtr node) {
  if (!node || node->done) return;
  targets_.push_back(node);
  wanted_.notify_one();
  done_.wait(lock, [&] { return node->done; });
}

void Gpu::wait_all(std::unique_lock<std::mutex>& lock) {
  if (pending_ == 0) return;
  ++waiting_for_all_;
  wanted_.notify_one();
  done_.wait(lock, [&] { return pending_ == 0; });
  --waiting_for_all_;
}

bool Gpu::wanted() const { return !targets_.empty() || (waiting_for_all_ > 0 && pending_ > 0); }

// Streams have priorities, which change at random: some starve, some run ahead.
NodePtr Gpu::choose() {
  const auto priority = [&](const NodePtr& node) {
    auto [entry, added] = priorities_.try_emplace(node->stream);
    if (added) entry->second = dice_();
    return entry->second;
  };
  size_t best = 0;
  for (size_t i = 1; i < ready_.size(); ++i) {
    if (priority(ready_[i]) > priority(ready_[best])) best = i;
  }
  NodePtr chosen = ready_[best];
  ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(best));
  if (dice_() % 8 == 0) priorities_[chosen->stream] = dice_();
  return chosen;
}

// Works while someone waits; and after a while anyway, since a GPU needs nobody to wait for it.
void Gpu::work() {
  is_gpu = true;
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool asked =
        wanted_.wait_for(lock, std::chrono::milliseconds(100), [&] { return wanted(); });
    if (ready_.empty()) continue;
    memory.open(true);
    while (!ready_.empty() && (wanted() || !asked)) {
      const NodePtr node = choose();
      seed_of_node = dice_();
      if (failed_ == cudaSuccess) {
        lock.unlock();
        std::string problem;
        running = node->name.c_str();
        try {
          if (node->work) node->work();
        } catch (const std::exception& error) {
          problem = error.what();
        }
        running = nullptr;
        lock.lock();
        if (problem.empty() && node->work) problem = memory.damage();
        if (!problem.empty()) {
          failed_ = cudaErrorLaunchFailure;
          failure_text_ = fmt::format("{}: {}", node->name, problem);
        }
      }
      finish(node);
    }
    // Not every time: it takes longer than most of the work.
    if (dice_() % 4 == 0) memory.open(false);
  }
}

void Gpu::finish(const NodePtr& node) {
  node->done = true;
  node->work = nullptr;
  --pending_;
  for (const NodePtr& next : node->after) {
    if (--next->unmet == 0) ready_.push_back(next);
  }
  node->after.clear();
  if (std::erase(targets_, node) > 0 || pending_ == 0) done_.notify_all();
}

void Gpu::set_seed(uint64_t seed) {
  std::lock_guard lock(mutex_);
  dice_.seed(seed);
  priorities_.clear();
}

void Gpu::recover() {
  std::unique_lock lock(mutex_);
  wait_all(lock);
  memory.open(false);
  failed_ = cudaSuccess;
  latest_error = cudaSuccess;
}

// --- Capture ---

// Calls that might wait, or might be reordered with what is captured.
void Gpu::forbid_in_capture() {
  bool forbidden = false;
  for (const auto& weak : captures_of_thread) {
    const CapturePtr capture = weak.lock();
    if (!capture || capture->ended || !capture->strict) continue;
    capture->broken = cudaErrorStreamCaptureInvalidated;
    forbidden = true;
  }
  require(!forbidden, cudaErrorStreamCaptureUnsupported);
}

void Gpu::begin_capture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  StreamState& origin = stream(handle);
  require(!origin.capture, cudaErrorIllegalState);
  origin.capture = std::make_shared<Capture>(handle, std::this_thread::get_id(),
                                             mode != cudaStreamCaptureModeRelaxed);
  captures_of_thread.push_back(origin.capture);
}

Graph Gpu::end_capture(cudaStream_t handle) {
  StreamState& origin = stream(handle);
  const CapturePtr capture = origin.capture;
  require(capture != nullptr, cudaErrorIllegalState);
  require(capture->origin == handle, cudaErrorStreamCaptureUnmatched);
  require(!capture->strict || capture->thread == std::this_thread::get_id(),
          cudaErrorStreamCaptureWrongThread);

  std::set<size_t> joined;
  std::vector<size_t> todo = origin.front;
  while (!todo.empty()) {
    const size_t node = todo.back();
    todo.pop_back();
    if (!joined.insert(node).second) continue;
    const auto& before = capture->graph[node].before;
    todo.insert(todo.end(), before.begin(), before.end());
  }
  capture->ended = true;
  bool all_joined = true;
  for (const auto& [other, state] : streams) {
    if (state->capture != capture) continue;
    for (size_t node : state->front) all_joined &= joined.contains(node);
    state->capture = nullptr;
    state->front.clear();
  }
  std::erase_if(captures_of_thread, [&](const auto& weak) { return weak.lock() == capture; });
  require(capture->broken == cudaSuccess, capture->broken);
  require(all_joined, cudaErrorStreamCaptureUnjoined);
  return std::move(capture->graph);
}

void Gpu::launch_graph(Executable& executable, cudaStream_t handle) {
  StreamState& to = stream(handle);
  require(!to.capture, cudaErrorStreamCaptureUnsupported);
  std::vector<NodePtr> nodes;
  for (const GraphNode& node : executable.graph) {
    std::vector<NodePtr> before = {to.last, executable.last};
    for (size_t other : node.before) before.push_back(nodes[other]);
    nodes.push_back(queue(node.stream, node.name, node.work, before));
    if (node.records) node.records->node = nodes.back();
  }
  nodes.push_back(to.last);
  to.last = executable.last = queue(handle, "end of a graph", nullptr, nodes);
}

// --- Pieces of calls ---

std::string quantity(const char* call, size_t bytes) {
  return fmt::format("{} of {} bytes", call, bytes);
}

Place place_of(const void* data, size_t bytes) {
  const auto place = gpu().memory.place(data, bytes);
  require(place.has_value() && data != nullptr, cudaErrorInvalidValue);
  return *place;
}

cudaError_t allocate(void** data, size_t bytes, Place place) {
  return gpu().call([&](auto&) {
    require(data != nullptr, cudaErrorInvalidValue);
    gpu().forbid_in_capture();
    *data = bytes ? gpu().memory.allocate(bytes, place) : nullptr;
    require(bytes == 0 || *data, cudaErrorMemoryAllocation);
  });
}

cudaError_t release(void* data, Place place) {
  return gpu().call([&](auto& lock) {
    gpu().forbid_in_capture();
    gpu().wait_all(lock);
    require(!data || gpu().memory.release(data, place), cudaErrorInvalidValue);
  });
}

void copy(std::unique_lock<std::mutex>& lock, void* to, const void* from, size_t bytes,
          cudaStream_t stream) {
  StreamState& state = gpu().stream(stream);
  if (bytes == 0) return;
  const Place source = place_of(from, bytes), target = place_of(to, bytes);
  const bool pageable = source == Place::kPageable || target == Place::kPageable;
  // CUDA might take it; but who would know that the memory is still there when it is replayed?
  require(!pageable || !state.capture, cudaErrorStreamCaptureUnsupported);
  std::string name = quantity("a copy", bytes);
  if (source == Place::kPageable && target == Place::kDevice) {
    const auto* begin = static_cast<const char*>(from);
    gpu().submit(stream, std::move(name), [to, staged = std::vector<char>(begin, begin + bytes)] {
      std::memcpy(to, staged.data(), staged.size());
    });
    return;
  }
  gpu().submit(stream, std::move(name), [=] { std::memmove(to, from, bytes); });
  if (target == Place::kPageable || (source != Place::kDevice && target != Place::kDevice)) {
    if (!state.capture) gpu().wait(lock, state.last);
  }
}

bool is_recorded_in_capture(const EventState& event) { return event.capture != nullptr; }

void break_capture(const CapturePtr& capture) {
  capture->broken = cudaErrorStreamCaptureInvalidated;
}

void require_readable(const EventState& event) {
  if (!is_recorded_in_capture(event)) return;
  break_capture(event.capture);
  throw Failure{cudaErrorCapturedEvent};
}

void wait_for_event(cudaStream_t handle, EventState& event) {
  StreamState& to = gpu().stream(handle);
  if (is_recorded_in_capture(event)) {
    require(!event.capture->ended, cudaErrorStreamCaptureIsolation);
    require(!to.capture || to.capture == event.capture, cudaErrorStreamCaptureMerge);
    to.capture = event.capture;
    for (size_t node : event.front) {
      if (std::find(to.front.begin(), to.front.end(), node) == to.front.end())
        to.front.push_back(node);
    }
    return;
  }
  if (to.capture) {
    break_capture(to.capture);
    throw Failure{cudaErrorStreamCaptureIsolation};
  }
  if (event.node) to.last = gpu().queue(handle, "a wait", nullptr, {to.last, event.node});
}

void record_event(cudaStream_t handle, const std::shared_ptr<EventState>& event, unsigned flags) {
  StreamState& from = gpu().stream(handle);
  require(from.device == event->device, cudaErrorInvalidResourceHandle);
  const bool external = flags & cudaEventRecordExternal;
  require(!external || from.capture, cudaErrorInvalidValue);
  if (from.capture && !external) {
    event->capture = from.capture;
    event->front = from.front;
    event->node = nullptr;
    return;
  }
  event->capture = nullptr;
  gpu().submit(
      handle, "an event", [event] { event->time = Clock::now(); }, event);
}

void check_shape(const Shape& shape) {
  const auto inside = [](const dim3& size, unsigned x, unsigned y, unsigned z) {
    return size.x > 0 && size.y > 0 && size.z > 0 && size.x <= x && size.y <= y && size.z <= z;
  };
  require(inside(shape.blocks, 0x7FFFFFFF, 65535, 65535) && inside(shape.threads, 1024, 1024, 64) &&
              shape.threads.x * shape.threads.y * shape.threads.z <= 1024,
          cudaErrorInvalidConfiguration);
  require(shape.shared_bytes <= 227 << 10, cudaErrorInvalidValue);
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, std::string name, std::function<void()> work) {
  return gpu().call([&](auto&) { gpu().submit(stream, std::move(name), std::move(work)); });
}

cudaError_t launch(std::string name, const Shape& shape, cudaStream_t stream,
                   std::function<void()> thread) {
  return gpu().call([&](auto&) {
    check_shape(shape);
    require(gpu().stream(stream).device == current_device, cudaErrorInvalidResourceHandle);
    gpu().submit(stream, std::move(name),
                 [shape, thread = std::move(thread)] { run_kernel(shape, thread, seed_of_node); });
  });
}

void set_seed(uint64_t seed) { gpu().set_seed(seed); }
void recover() { gpu().recover(); }

}  // namespace trireme::emulation

// --- The CUDA runtime ---

using namespace trireme::emulation;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count();
  return *count > 0 ? cudaSuccess : latest_error = cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device) {
  return gpu().call([&](auto&) {
    require(device >= 0 && device < device_count(), cudaErrorInvalidDevice);
    current_device = device;
  });
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return gpu().call([&](auto&) {
    require(device >= 0 && device < device_count(), cudaErrorInvalidDevice);
    *properties = {};
    std::strcpy(properties->name, "Emulated device");
    properties->major = 9;
    properties->multiProcessorCount = 4;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->sharedMemPerBlock = 48 << 10;
    properties->sharedMemPerBlockOptin = 227 << 10;
    properties->totalGlobalMem = Memory::kBytes;
    properties->l2CacheSize = 1 << 20;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  return gpu().call([&](auto&) {
    require(device >= 0 && device < device_count(), cudaErrorInvalidDevice);
    std::snprintf(id, static_cast<size_t>(bytes), "0000:%02x:00.0", device + 1);
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = std::exchange(latest_error, cudaSuccess);
  return gpu().failed() != cudaSuccess ? gpu().failed() : error;
}

cudaError_t cudaPeekAtLastError() {
  return gpu().failed() != cudaSuccess ? gpu().failed() : latest_error;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define NAME(name) \
  case name:       \
    return #name
    NAME(cudaSuccess);
    NAME(cudaErrorInvalidValue);
    NAME(cudaErrorMemoryAllocation);
    NAME(cudaErrorInvalidConfiguration);
    NAME(cudaErrorNoDevice);
    NAME(cudaErrorInvalidDevice);
    NAME(cudaErrorInvalidResourceHandle);
    NAME(cudaErrorIllegalState);
    NAME(cudaErrorNotReady);
    NAME(cudaErrorLaunchFailure);
    NAME(cudaErrorStreamCaptureUnsupported);
    NAME(cudaErrorStreamCaptureInvalidated);
    NAME(cudaErrorStreamCaptureMerge);
    NAME(cudaErrorStreamCaptureUnmatched);
    NAME(cudaErrorStreamCaptureUnjoined);
    NAME(cudaErrorStreamCaptureIsolation);
    NAME(cudaErrorStreamCaptureWrongThread);
    NAME(cudaErrorCapturedEvent);
    NAME(cudaErrorHostMemoryAlreadyRegistered);
    NAME(cudaErrorHostMemoryNotRegistered);
#undef NAME
    default:
      return "an error that the emulation does not give";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorLaunchFailure ? gpu().failure_text() : "see CUDA's documentation";
}

cudaError_t cudaMalloc(void** data, size_t bytes) { return allocate(data, bytes, Place::kDevice); }
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  return allocate(data, bytes, Place::kPinned);
}
cudaError_t cudaFree(void* data) { return release(data, Place::kDevice); }
cudaError_t cudaFreeHost(void* data) { return release(data, Place::kPinned); }

cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned) {
  return gpu().call([&](auto&) {
    gpu().forbid_in_capture();
    require(data && bytes > 0, cudaErrorInvalidValue);
    require(gpu().memory.pin(data, bytes), cudaErrorHostMemoryAlreadyRegistered);
  });
}

cudaError_t cudaHostUnregister(void* data) {
  return gpu().call([&](auto& lock) {
    gpu().forbid_in_capture();
    gpu().wait_all(lock);
    require(gpu().memory.unpin(data), cudaErrorHostMemoryNotRegistered);
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return gpu().call([&](auto&) {
    *total = Memory::kBytes;
    *free = Memory::kBytes - gpu().memory.used();
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return gpu().call([&](auto& lock) { copy(lock, to, from, bytes, stream); });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return gpu().call([&](auto&) {
    gpu().stream(stream);
    if (bytes == 0) return;
    require(place_of(to, bytes) != Place::kPageable, cudaErrorInvalidValue);
    gpu().submit(stream, quantity("a memset", bytes), [=] { std::memset(to, value, bytes); });
  });
}

cudaError_t cudaDeviceSynchronize() {
  return gpu().call([&](auto& lock) {
    gpu().forbid_in_capture();
    gpu().wait_all(lock);
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return gpu().call(
      [&](auto&) { *stream = gpu().streams.add(std::make_shared<StreamState>(current_device)); });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return gpu().call([&](auto&) {
    if (const CapturePtr capture = gpu().stream(stream).capture) break_capture(capture);
    gpu().streams.remove(stream);
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return gpu().call([&](auto& lock) {
    const StreamState& stream = gpu().stream(handle);
    if (stream.capture) {
      break_capture(stream.capture);
      throw Failure{cudaErrorStreamCaptureUnsupported};
    }
    gpu().wait(lock, stream.last);
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return gpu().call([&](auto&) {
    const StreamState& stream = gpu().stream(handle);
    if (stream.capture) {
      break_capture(stream.capture);
      throw Failure{cudaErrorStreamCaptureUnsupported};
    }
    require(!stream.last || stream.last->done, cudaErrorNotReady);
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return gpu().call([&](auto&) {
    require(flags == 0, cudaErrorInvalidValue);
    wait_for_event(stream, *gpu().event(event));
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return gpu().call(
      [&](auto&) { gpu().submit(stream, "a host function", [=] { function(data); }); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return gpu().call([&](auto&) {
    *event = gpu().events.add(
        std::make_shared<EventState>(current_device, !(flags & cudaEventDisableTiming)));
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return gpu().call(
      [&](auto&) { require(gpu().events.remove(event), cudaErrorInvalidResourceHandle); });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return gpu().call([&](auto&) { record_event(stream, gpu().event(event), flags); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return gpu().call([&](auto& lock) {
    const auto state = gpu().event(event);
    require_readable(*state);
    gpu().wait(lock, state->node);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return gpu().call([&](auto&) {
    const auto state = gpu().event(event);
    require_readable(*state);
    require(!state->node || state->node->done, cudaErrorNotReady);
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return gpu().call([&](auto&) {
    const auto begin = gpu().event(from), end = gpu().event(to);
    for (const auto& event : {begin, end}) {
      require(event->timed && event->node, cudaErrorInvalidResourceHandle);
      require(event->node->done, cudaErrorNotReady);
    }
    *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return gpu().call([&](auto&) { gpu().begin_capture(stream, mode); });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return gpu().call([&](auto&) {
    *graph = nullptr;
    *graph = gpu().graphs.add(std::make_shared<Graph>(gpu().end_capture(stream)));
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return gpu().call([&](auto&) {
    const StreamState& stream = gpu().stream(handle);
    *status = !stream.capture                         ? cudaStreamCaptureStatusNone
              : stream.capture->broken == cudaSuccess ? cudaStreamCaptureStatusActive
                                                      : cudaStreamCaptureStatusInvalidated;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  return gpu().call([&](auto&) {
    const auto found = gpu().graphs.find(graph);
    require(found != nullptr, cudaErrorInvalidValue);
    *executable = gpu().executables.add(std::make_shared<Executable>(*found));
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return gpu().call([&](auto&) { require(gpu().graphs.remove(graph), cudaErrorInvalidValue); });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return gpu().call(
      [&](auto&) { require(gpu().executables.remove(executable), cudaErrorInvalidValue); });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  return gpu().call([&](auto&) {
    require(gpu().executables.find(executable) != nullptr, cudaErrorInvalidValue);
    gpu().stream(stream);
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream) {
  return gpu().call([&](auto&) {
    const auto executable = gpu().executables.find(handle);
    require(executable != nullptr, cudaErrorInvalidValue);
    gpu().launch_graph(*executable, stream);
  });
}

}  // extern "C"
