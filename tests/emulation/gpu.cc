#include "gpu.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <set>

namespace trireme::emulation {
namespace {

thread_local bool is_gpu = false;  // true in the threads that run the GPU's work

uint64_t seed_now = 0;

// --- Reporting invalid accesses ---

thread_local std::atomic<const char*> running = nullptr;  // name of the node that this thread runs

void on_invalid_access(int signal, siginfo_t* info, void*) {
  char text[256];
  const char* name = running;
  const auto end =
      is_gpu ? fmt::format_to_n(text, sizeof(text) - 1,
                                "emulation: {} accessed {}, which is not allocated\n",
                                name ? name : "?", info->si_addr)
             : fmt::format_to_n(text, sizeof(text) - 1,
                                "emulation: the host accessed {}, which may be device memory\n",
                                info->si_addr);
  [[maybe_unused]] const auto written =
      write(STDERR_FILENO, text, static_cast<size_t>(end.out - text));
  ::signal(signal, SIG_DFL);
}

void report_invalid_accesses() {
  struct sigaction before, action{};
  sigaction(SIGSEGV, nullptr, &before);
  if (before.sa_handler != SIG_DFL) return;  // a sanitizer has installed a handler
  action.sa_sigaction = on_invalid_access;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace

Gpu& gpu() {
  static auto* const only = new Gpu;  // never destroyed, because threads may use it until the end
  return *only;
}

uint64_t seed_of_node() { return seed_now; }

// --- Running work ---

Gpu::Gpu() {
  const char* seed = std::getenv("TRIREME_EMULATION_SEED");
  set_seed(seed ? std::strtoull(seed, nullptr, 10) : 1);
  report_invalid_accesses();
  std::thread([this] { compute(); }).detach();
  std::thread([this] { communicate(); }).detach();
}

void Gpu::submit(cudaStream_t handle, Work work, std::shared_ptr<EventState> records) {
  StreamState& to = stream(handle);
  if (!to.capture) {
    to.last = queue(handle, std::move(work), {to.last});
    if (!records) return;
    records->node = to.last;
    records->in_graph = false;
    return;
  }
  Graph& graph = to.capture->graph;
  graph.push_back({std::move(work), handle, to.front, std::move(records)});
  to.front = {graph.size() - 1};
}

NodePtr Gpu::queue(cudaStream_t stream, Work work, std::vector<NodePtr> before) {
  auto node = std::make_shared<Node>(Node{std::move(work), stream});
  node->number = queued_++;
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

// Kernels of NCCL wait for other ranks while they occupy multiprocessors, so another one may not
// fit. Other work does, unless everything runs in order.
bool Gpu::can_start(const NodePtr& node) const {
  return !communicating_ || (!node->work.communicates && !in_order_);
}
bool Gpu::can_start_any() const {
  return std::ranges::any_of(ready_, [this](const NodePtr& node) { return can_start(node); });
}

// Streams have priorities that change at random, so that some starve and some run ahead. In order,
// the node that was queued first is chosen; no node waits for one that was queued later.
NodePtr Gpu::choose() {
  const auto priority = [&](const NodePtr& node) {
    if (in_order_) return ~node->number;
    auto [entry, added] = priorities_.try_emplace(node->stream);
    if (added) entry->second = random_();
    return entry->second;
  };
  size_t best = ready_.size();
  for (size_t i = 0; i < ready_.size(); ++i) {
    if (!can_start(ready_[i])) continue;
    if (best == ready_.size() || priority(ready_[i]) > priority(ready_[best])) best = i;
  }
  NodePtr chosen = ready_[best];
  ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(best));
  if (random_() % 8 == 0) priorities_[chosen->stream] = random_();
  return chosen;
}

// Starts work while a call waits for it, and otherwise after a delay, since a real GPU runs work
// without being waited for.
void Gpu::compute() {
  is_gpu = true;
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool asked = wanted_.wait_for(lock, std::chrono::milliseconds(100),
                                        [&] { return wanted() && can_start_any(); });
    if (!can_start_any()) continue;
    memory.open(true);
    while (can_start_any() && (wanted() || !asked)) {
      const NodePtr node = choose();
      seed_now = random_();
      if (node->work.communicates) {
        communicating_ = node;
        communicates_.notify_one();
      } else {
        run(lock, node);
      }
    }
    // Not every time, because it takes longer than most work.
    if (random_() % 4 == 0 && !communicating_) memory.open(false);
  }
}

void Gpu::communicate() {
  is_gpu = true;
  std::unique_lock lock(mutex_);
  for (;;) {
    communicates_.wait(lock, [&] { return communicating_ != nullptr; });
    run(lock, communicating_);
    communicating_ = nullptr;
    wanted_.notify_one();
  }
}

// Runs the node, unless the GPU has failed.
void Gpu::run(std::unique_lock<std::mutex>& lock, const NodePtr& node) {
  if (failed_ == cudaSuccess && node->work.run) {
    lock.unlock();
    std::string problem;
    running = node->work.name.c_str();
    try {
      node->work.run();
    } catch (const std::exception& error) {
      problem = error.what();
    }
    running = nullptr;
    lock.lock();
    if (problem.empty()) problem = memory.damage();
    if (!problem.empty() && failed_ == cudaSuccess) {
      failed_ = cudaErrorLaunchFailure;
      failure_text_ = fmt::format("{}: {}", node->work.name, problem);
    }
  }
  finish(node);
}

void Gpu::finish(const NodePtr& node) {
  node->done = true;
  node->work.run = nullptr;
  --pending_;
  for (const NodePtr& next : node->after) {
    if (--next->unmet == 0) ready_.push_back(next);
  }
  node->after.clear();
  if (std::erase(targets_, node) > 0 || pending_ == 0) done_.notify_all();
}

void Gpu::set_seed(uint64_t seed) {
  std::lock_guard lock(mutex_);
  in_order_ = seed == 0;
  random_.seed(seed);
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

// Invalidates strict captures of this thread. Called by functions that may block or may be
// reordered with captured work.
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
  origin.capture = std::make_shared<Capture>(
      Capture{handle, std::this_thread::get_id(), mode != cudaStreamCaptureModeRelaxed});
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
    nodes.push_back(queue(node.stream, node.work, before));
    if (!node.records) continue;
    node.records->node = nodes.back();
    node.records->in_graph = true;
  }
  nodes.push_back(to.last);
  to.last = executable.last = queue(handle, {"end of a graph"}, nodes);
}

}  // namespace trireme::emulation
