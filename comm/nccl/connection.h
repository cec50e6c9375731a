#pragma once

#include <nccl.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/nccl/nccl_library.h"

namespace trireme::comm::nccl {

// Why communicators that were split from one another are aborted: all are as soon as one is.
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

// A communicator of NCCL, watched from a thread of its own: when a peer is lost or NCCL reports an
// error, it is aborted, so that what waits for the peer on the GPU ends, and the streams of the
// device and every later call here throw CommError.
class Connection {
 public:
  // `start` begins to make a non-blocking communicator. Returns when it is made: with all its
  // ranks. `host` tells of lost peers. All references outlive the connection.
  Connection(const Library& library, const Communicator& host, Device& device,
             std::shared_ptr<SharedFailure> loss,
             const std::function<ncclResult_t(ncclComm_t*)>& start);
  // With all ranks, except while an exception unwinds.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Makes a call, start(ncclComm_t) -> ncclResult_t, and waits until NCCL has queued its work.
  template <class Start>
  void run(const Call& call, Start start) {
    std::unique_lock lock(mutex_);
    throw_if_lost();
    latest_ = call;
    settle(lock, start(handle_));
  }

  // Gives something back, start(ncclComm_t), unless all of it went when the communicator did.
  template <class Start>
  void give_back(Start start) {
    std::lock_guard lock(mutex_);
    if (handle_) start(handle_);
  }

  // Why it was aborted, or empty.
  std::string lost() const;

 private:
  void throw_if_lost() const;
  ncclResult_t poll() const;
  void settle(std::unique_lock<std::mutex>& lock, ncclResult_t result);
  void watch(const std::stop_token& stop);
  void look();
  void lose(const std::string& reason);

  const Library& library_;
  const Communicator& host_;
  Device& device_;
  const std::shared_ptr<SharedFailure> loss_;
  // Over the rest. Calls do not block, so it is never held for long.
  mutable std::mutex mutex_;
  ncclComm_t handle_ = nullptr;  // also null once it is lost
  Call latest_ = {"connect"};
  std::string lost_;
  std::condition_variable_any stopped_;
  std::jthread watch_;
};

}  // namespace trireme::comm::nccl
