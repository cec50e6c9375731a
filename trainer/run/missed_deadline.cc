#include "trainer/run/missed_deadline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "comm/watchdog/report.h"
#include "trainer/checkpoint/checkpoint.h"

namespace trireme::train {
namespace {

using Paths = std::vector<std::filesystem::path>;

Paths list_checkpoints(const std::filesystem::path& folder) {
  return folder.empty() ? Paths() : Checkpoints(folder, 1).list();
}

// Lists the folder in a thread that is abandoned after a while, since it may be the disk that
// hangs. Throws Error.
Paths list_or_time_out(const std::filesystem::path& folder) {
  auto promise = std::make_shared<std::promise<Paths>>();
  std::future<Paths> paths = promise->get_future();
  std::thread([promise, folder] {
    try {
      promise->set_value(list_checkpoints(folder));
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }).detach();
  if (paths.wait_for(std::chrono::milliseconds(300)) != std::future_status::ready) {
    throw Error(fmt::format("{} cannot be read: its disk does not respond", folder.string()));
  }
  return paths.get();
}

}  // namespace

MissedDeadline::MissedDeadline(comm::Communicator& communicator, std::filesystem::path checkpoints)
    : communicator_(communicator), checkpoints_(std::move(checkpoints)) {
  try {
    before_ = list_checkpoints(checkpoints_);
  } catch (const Error&) {  // report() cannot read it either
  }
}

ExitCode MissedDeadline::report(double grace) const {
  bool progress = false;
  std::string newest = "no checkpoint has been saved yet";
  try {
    const Paths all = list_or_time_out(checkpoints_);
    progress = std::ranges::any_of(
        all, [&](const auto& path) { return std::ranges::find(before_, path) == before_.end(); });
    if (!all.empty()) {
      newest = fmt::format("the same command resumes from {}{}", all.front().string(),
                           progress ? "" : ", which an earlier start has saved");
    }
  } catch (const std::exception& error) {
    newest = error.what();
  }
  const ExitCode code = progress ? ExitCode::kResumable : ExitCode::kFailure;
  comm::Ledger& ledger = communicator_.ledger();
  const std::string text = fmt::format(
      "{:g} s after the request to stop, the progress since the newest checkpoint is still not "
      "saved ({} steps are done); {}",
      grace, ledger.record().step.load(), newest);
  if (communicator_.size() > 1) {
    ledger.fail(text, static_cast<int>(code), /*caused_by_peer=*/false);
    // A watchdog ends the process before that.
    std::this_thread::sleep_for(std::chrono::seconds(5));
  }
  comm::report(text, ledger.options().log);
  return code;
}

}  // namespace trireme::train
