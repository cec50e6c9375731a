#include "comm/nccl/connection.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <utility>

#include "core/cuda/cuda.h"

namespace trireme::comm::nccl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPollPeriod = std::chrono::milliseconds(100);
constexpr auto kSpinTime = std::chrono::milliseconds(1);  // most calls are queued within it
constexpr auto kBetweenPolls = std::chrono::microseconds(100);

}  // namespace

Connection::Connection(const Library& library, const Communicator& host, Device& device,
                       std::shared_ptr<SharedFailure> shared_failure,
                       const std::function<ncclResult_t(ncclComm_t*)>& start)
    : library_(library), host_(host), device_(device), shared_failure_(std::move(shared_failure)) {
  watch_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  run(
      latest_, [&](ncclComm_t) { return start(&handle_); }, kTimeout);
}

Connection::~Connection() {
  if (std::uncaught_exceptions() == 0) {
    try {
      run(
          {"disconnect"}, [this](ncclComm_t handle) { return library_.comm_finalize(handle); },
          kTimeout);
    } catch (const CommError&) {
      // The communicator has been aborted, and the streams of the device report it.
    }
  }
  std::lock_guard lock(mutex_);
  if (!handle_) return;
  if (std::uncaught_exceptions() == 0) {
    library_.comm_destroy(handle_);
  } else {
    library_.comm_abort(handle_);
  }
  handle_ = nullptr;
}

void Connection::cancel() noexcept {
  const std::lock_guard lock(mutex_);
  if (!handle_) return;
  failure_ = fmt::format("NCCL: cancelled, since this rank has failed; the last call queued was {}",
                         describe(latest_));
  library_.comm_abort(std::exchange(handle_, nullptr));
}

std::string Connection::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void Connection::throw_if_failed() const {
  if (!failure_.empty()) throw CommError(failure_);
}

ncclResult_t Connection::poll() const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = library_.comm_get_async_error(handle_, &state);
  return result == ncclSuccess ? state : result;
}

void Connection::wait_until_queued(std::unique_lock<std::mutex>& lock, ncclResult_t result,
                                   std::optional<std::chrono::minutes> limit) {
  const auto begin = Clock::now();
  while (result == ncclInProgress && (!limit || Clock::now() < begin + *limit)) {
    lock.unlock();
    if (Clock::now() < begin + kSpinTime) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kBetweenPolls);
    }
    lock.lock();
    throw_if_failed();
    result = poll();
  }
  if (result == ncclSuccess) return;
  abort(result == ncclInProgress ? fmt::format("no completion within {} minutes", limit->count())
                                 : library_.explain(result));
  throw_if_failed();
}

void Connection::watch(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    check();
    stopped_.wait_for(lock, stop, kPollPeriod, [] { return false; });
  }
}

void Connection::check() {
  if (!handle_) return;
  if (const std::string reason = host_.failure(); !reason.empty()) return abort(reason);
  if (const std::string reason = shared_failure_->reason(); !reason.empty()) return abort(reason);
  const ncclResult_t state = poll();
  if (state != ncclSuccess && state != ncclInProgress) abort(library_.explain(state));
}

void Connection::abort(const std::string& reason) {
  shared_failure_->set(reason);
  failure_ = fmt::format("NCCL: {}; the last call queued was {}", reason, describe(latest_));
  // Before aborting NCCL: after that, threads that wait for the device continue immediately.
  cuda::fail(device_, std::make_exception_ptr(CommError(failure_)));
  if (handle_) library_.comm_abort(std::exchange(handle_, nullptr));
}

}  // namespace trireme::comm::nccl
