#pragma once

#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/nccl/nccl_library.h"

namespace trireme::comm::nccl {

// The reason for aborting a communicator and all others split from it: if one fails, all are
// aborted.
class SharedFailure {
 public:
  std::string reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }
  void set(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason;
  }

 private:
  mutable std::mutex mutex_;
  std::string reason_;
};

// Owns an NCCL communicator and watches it from a thread. If a peer is lost or NCCL reports an
// error, the communicator is aborted: operations on the GPU that wait for the peer end, and the
// streams of the device and every later call here throw CommError.
class Connection {
 public:
  // `start` begins to create a non-blocking NCCL communicator. Returns when all its ranks are
  // connected; throws CommError if that fails. `host` detects lost peers. All references must
  // outlive the connection.
  Connection(const Library& library, const Communicator& host, Device& device,
             std::shared_ptr<SharedFailure> shared_failure,
             const std::function<ncclResult_t(ncclComm_t*)>& start);
  // All ranks must destroy it together, unless an exception unwinds.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Limit for calls that all ranks make at the same time.
  static constexpr std::chrono::minutes kTimeout{5};
  // Makes a call, start(ncclComm_t) -> ncclResult_t, and waits until NCCL has queued its work: for
  // the first transfer between two ranks, until both have made the call. Throws CommError if it
  // fails or exceeds the limit.
  template <class Start>
  void run(const Call& call, Start start, std::optional<std::chrono::minutes> limit = {}) {
    std::unique_lock lock(mutex_);
    throw_if_failed();
    latest_ = call;
    wait_until_queued(lock, start(handle_), limit);
  }

  // Calls function(ncclComm_t) to free a resource, unless the communicator has been aborted, which
  // frees all its resources.
  template <class Function>
  void release(Function function) {
    std::lock_guard lock(mutex_);
    if (handle_) function(handle_);
  }

  // Aborts the communicator alone: operations on the GPU that wait for a peer end.
  void cancel() noexcept;

  // Returns why the communicator was aborted; empty if it was not.
  std::string failure() const;

 private:
  void throw_if_failed() const;
  ncclResult_t poll() const;
  void wait_until_queued(std::unique_lock<std::mutex>& lock, ncclResult_t result,
                         std::optional<std::chrono::minutes> limit);
  void watch(const std::stop_token& stop);
  void check();
  void abort(const std::string& reason);

  const Library& library_;
  const Communicator& host_;
  Device& device_;
  const std::shared_ptr<SharedFailure> shared_failure_;
  // Guards the members below. Calls do not block, so it is never held for long.
  mutable std::mutex mutex_;
  ncclComm_t handle_ = nullptr;  // null once it has been aborted
  Call latest_ = {"connect"};
  std::string failure_;
  std::condition_variable_any stopped_;
  std::jthread watch_;
};

}  // namespace trireme::comm::nccl
