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
constexpr auto kSoon = std::chrono::milliseconds(1);  // what is queued mostly is by then
constexpr auto kBetweenPolls = std::chrono::microseconds(100);
// What NCCL does on the host, connecting above all, has ended by then or never will.
constexpr auto kPatience = std::chrono::minutes(5);

}  // namespace

Connection::Connection(const Library& library, const Communicator& host, Device& device,
                       std::shared_ptr<SharedFailure> loss,
                       const std::function<ncclResult_t(ncclComm_t*)>& start)
    : library_(library), host_(host), device_(device), loss_(std::move(loss)) {
  watch_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  run(latest_, [&](ncclComm_t) { return start(&handle_); });
}

Connection::~Connection() {
  if (std::uncaught_exceptions() == 0) {
    try {
      run({"disconnect"}, [this](ncclComm_t handle) { return library_.comm_finalize(handle); });
    } catch (const CommError&) {
      // It is aborted then, and the streams of the device tell.
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

std::string Connection::lost() const {
  std::lock_guard lock(mutex_);
  return lost_;
}

void Connection::throw_if_lost() const {
  if (!lost_.empty()) throw CommError(lost_);
}

ncclResult_t Connection::poll() const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = library_.comm_get_async_error(handle_, &state);
  return result == ncclSuccess ? state : result;
}

void Connection::settle(std::unique_lock<std::mutex>& lock, ncclResult_t result) {
  const auto begin = Clock::now();
  while (result == ncclInProgress && Clock::now() < begin + kPatience) {
    lock.unlock();
    if (Clock::now() < begin + kSoon) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kBetweenPolls);
    }
    lock.lock();
    throw_if_lost();
    result = poll();
  }
  if (result == ncclSuccess) return;
  lose(result == ncclInProgress ? fmt::format("not done after {} minutes", kPatience.count())
                                : library_.explain(result));
  throw_if_lost();
}

void Connection::watch(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    look();
    stopped_.wait_for(lock, stop, kPollPeriod, [] { return false; });
  }
}

void Connection::look() {
  if (!handle_) return;
  if (const std::string reason = host_.failure(); !reason.empty()) return lose(reason);
  if (const std::string reason = loss_->reason(); !reason.empty()) return lose(reason);
  const ncclResult_t state = poll();
  if (state != ncclSuccess && state != ncclInProgress) lose(library_.explain(state));
}

void Connection::lose(const std::string& reason) {
  loss_->set(reason);
  lost_ = fmt::format("NCCL: {}; the last queued was {}", reason, describe(latest_));
  // First, since whoever waits for the device is free as soon as NCCL is aborted.
  cuda::fail(device_, std::make_exception_ptr(CommError(lost_)));
  if (handle_) library_.comm_abort(std::exchange(handle_, nullptr));
}

}  // namespace trireme::comm::nccl
