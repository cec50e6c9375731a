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

// For a save when the run ends early: long enough for most, short enough not to be in the way of
// the error that ends it.
constexpr Seconds kLastWait{3};

}  // namespace

// What the thread uses. It outlives the writer when the disk hangs.
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
  if (written_.wait_for(kLastWait) != std::future_status::ready) job_->stop.request_stop();
  if (written_.wait_for(kLastWait / 3) == std::future_status::ready) {
    static_cast<void>(collect());
    return;
  }
  // The thread hangs in a call that nothing in this process can end. The end of the process ends
  // it: the kernel kills a thread that waits for a network or a FUSE file system; one that waits
  // for a disk of this machine stays, unseen, until its driver gives up. Until then it may use
  // what it was given, which is therefore never freed.
  thread_.detach();
  static_cast<void>(job_.release());
}

std::optional<int64_t> CheckpointWriter::writing() const {
  return written_.valid() ? std::optional(save_.state.step) : std::nullopt;
}

double CheckpointWriter::seconds() const { return seconds_since(started_); }

void CheckpointWriter::give_time(double seconds) const {
  if (writing() && !told_) written_.wait_for(Seconds(seconds));
}

void CheckpointWriter::start(const CheckpointState& state, std::function<void()> before) {
  started_ = Clock::now();
  told_ = false;
  save_ = {.state = state};
  job_->snapshot.take();
  save_.stall_seconds = seconds_since(started_);
  const auto write = [job = job_.get(), save = save_, started = started_,
                      before = std::move(before)] {
    go_to_background("checkpoint");
    if (before) before();
    return job->write(save, started);
  };
  std::packaged_task<SaveOutcome()> task(write);
  written_ = task.get_future();
  try {
    thread_ = std::thread(std::move(task));
  } catch (const std::system_error& error) {  // as many threads as this process may have
    save_.error = fmt::format("no thread can be had to write it: {}", error.what());
    std::promise<SaveOutcome> failed;
    failed.set_value(save_);
    written_ = failed.get_future();
  }
}

std::optional<SaveOutcome> CheckpointWriter::poll() {
  if (!writing()) return std::nullopt;
  if (written_.wait_for(Seconds(0)) == std::future_status::ready) return collect();
  if (told_ || Clock::now() - started_ < timeout_) return std::nullopt;
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
  told_ = true;
  SaveOutcome so_far = save_;
  so_far.seconds = seconds_since(started_);
  so_far.error = fmt::format("it is still being written after {:g} s (checkpoint.timeout_seconds)",
                             timeout_.count());
  return so_far;
}

}  // namespace trireme::train
