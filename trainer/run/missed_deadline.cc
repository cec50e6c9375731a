#include "trainer/run/missed_deadline.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "core/error.h"
#include "trainer/checkpoint/checkpoint.h"

namespace trireme::train {
namespace {

std::string describe_newest(const std::filesystem::path& checkpoints) {
  if (checkpoints.empty()) return "no checkpoint has been saved yet";
  const auto all = Checkpoints(checkpoints, 1).list();
  if (all.empty()) return "no checkpoint has been saved yet";
  return fmt::format("the same command resumes from {}", all.front().string());
}

// Reads the folder in a thread that is abandoned after a while, since it may be the disk that
// hangs.
std::string describe_newest_or_time_out(const std::filesystem::path& checkpoints) {
  auto promise = std::make_shared<std::promise<std::string>>();
  std::future<std::string> newest = promise->get_future();
  std::thread([promise, checkpoints] {
    try {
      promise->set_value(describe_newest(checkpoints));
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }).detach();
  if (newest.wait_for(std::chrono::milliseconds(300)) != std::future_status::ready) {
    return fmt::format("{} cannot be read: its disk does not respond", checkpoints.string());
  }
  try {
    return newest.get();
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

void report_missed_deadline(comm::Communicator& communicator,
                            const std::filesystem::path& checkpoints, double grace) {
  comm::Ledger& ledger = communicator.ledger();
  const std::string text = fmt::format(
      "{:g} s after the request to stop, the progress since the newest checkpoint is still not "
      "saved "
      "({} steps are done); {}",
      grace, ledger.record().step.load(), describe_newest_or_time_out(checkpoints));
  if (communicator.size() > 1) {
    ledger.fail(text, static_cast<int>(ExitCode::kResumable), /*caused_by_peer=*/false);
    std::this_thread::sleep_for(
        std::chrono::seconds(5));  // a watchdog ends the process before that
  }
  std::fprintf(stderr, "trireme: %s\n", text.c_str());
}

}  // namespace trireme::train
