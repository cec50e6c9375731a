#include "trainer/checkpoint/checkpoint_writer.h"

#include <fmt/format.h>

#include <exception>
#include <stop_token>
#include <system_error>
#include <utility>

#include "core/clock.h"
#include "core/fault_point.h"
#include "trainer/base/background.h"

namespace trireme::train {
namespace {

using Seconds = std::chrono::duration<double>;

// The wait for a save if the run ends early: enough for most saves, and short enough not to delay
// the report of the error that ends the run.
constexpr Seconds kShutdownWait{3};

}  // namespace

// The data used by the thread. It is never freed if the disk hangs.
struct CheckpointWriter::Job {
  Checkpoints checkpoints;
  Snapshot snapshot;
  std::stop_source stop = {};

  SaveOutcome write(SaveOutcome save, Clock::time_point started) const {
    try {
      fault_point("write", save.state.step);
      SavedCheckpoint saved = checkpoints.save(save.state, snapshot, stop.get_token());
      save.path = std::move(saved.path);
      save.problem = std::move(saved.problem);
    } catch (const std::exception& error) {
      save.error = error.what();
    }
    save.seconds = seconds_since(started);
    return save;
  }
};

CheckpointWriter::CheckpointWriter(Checkpoints checkpoints, StateArrays arrays, double timeout)
    : timeout_(timeout), job_(new Job{std::move(checkpoints), Snapshot(std::move(arrays))}) {}

CheckpointWriter::~CheckpointWriter() {
  if (!writing()) return;
  if (written_.wait_for(kShutdownWait) != std::future_status::ready) job_->stop.request_stop();
  if (written_.wait_for(kShutdownWait / 3) == std::future_status::ready) {
    static_cast<void>(collect());
    return;
  }
  // The thread hangs in a system call that this process cannot interrupt. When the process ends,
  // the kernel kills a thread that waits for a network or FUSE file system; one that waits for a
  // local disk remains until the driver returns an error. Until then it may use the job, which is
  // therefore never freed.
  thread_.detach();
  static_cast<void>(job_.release());
}

std::optional<int64_t> CheckpointWriter::writing() const {
  return written_.valid() ? std::optional(save_.state.step) : std::nullopt;
}

double CheckpointWriter::seconds() const { return seconds_since(started_); }

void CheckpointWriter::wait_up_to(double seconds) const {
  if (writing() && !reported_overdue_) written_.wait_for(Seconds(seconds));
}

void CheckpointWriter::start(const CheckpointState& state, std::function<void()> before) {
  started_ = Clock::now();
  reported_overdue_ = false;
  save_ = {.state = state};
  job_->snapshot.take();
  save_.stall_seconds = seconds_since(started_);
  const auto write = [job = job_.get(), save = save_, started = started_,
                      before = std::move(before)] {
    set_background_thread("checkpoint");
    if (before) before();
    return job->write(save, started);
  };
  std::packaged_task<SaveOutcome()> task(write);
  written_ = task.get_future();
  try {
    thread_ = std::thread(std::move(task));
  } catch (const std::system_error& error) {  // the limit of threads is reached
    save_.error = fmt::format("the thread that writes it cannot be started: {}", error.what());
    std::promise<SaveOutcome> failed;
    failed.set_value(save_);
    written_ = failed.get_future();
  }
}

std::optional<SaveOutcome> CheckpointWriter::poll() {
  if (!writing()) return std::nullopt;
  if (written_.wait_for(Seconds(0)) == std::future_status::ready) return collect();
  if (reported_overdue_ || Clock::now() - started_ < timeout_) return std::nullopt;
  return overdue();
}

SaveOutcome CheckpointWriter::wait() {
  const auto rest = timeout_ - (Clock::now() - started_);
  return written_.wait_for(rest) == std::future_status::ready ? collect() : overdue();
}

SaveOutcome CheckpointWriter::collect() {
  if (thread_.joinable()) thread_.join();
  return written_.get();
}

SaveOutcome CheckpointWriter::overdue() {
  reported_overdue_ = true;
  SaveOutcome so_far = save_;
  so_far.seconds = seconds_since(started_);
  so_far.error = fmt::format("it is still being written after {:g} s (checkpoint.timeout_seconds)",
                             timeout_.count());
  return so_far;
}

}  // namespace trireme::train
