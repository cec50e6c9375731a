#include "trainer/run/last_words.h"

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

std::string newest_in(const std::filesystem::path& checkpoints) {
  if (checkpoints.empty()) return "there is none yet";
  const auto all = Checkpoints(checkpoints, 1).list();
  if (all.empty()) return "there is none yet";
  return fmt::format("that is {}, from which the same command goes on", all.front().string());
}

// The disk may be what hangs, so it is asked by a thread that nobody waits for.
std::string newest_if_told(const std::filesystem::path& checkpoints) {
  auto answer = std::make_shared<std::promise<std::string>>();
  std::future<std::string> told = answer->get_future();
  std::thread([answer, checkpoints] {
    try {
      answer->set_value(newest_in(checkpoints));
    } catch (...) {
      answer->set_exception(std::current_exception());
    }
  }).detach();
  if (told.wait_for(std::chrono::milliseconds(300)) != std::future_status::ready) {
    return fmt::format("{} cannot be read: its disk does not answer", checkpoints.string());
  }
  try {
    return told.get();
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

void say_last_words(comm::Communicator& communicator, const std::filesystem::path& checkpoints,
                    double grace) {
  comm::Ledger& ledger = communicator.ledger();
  const std::string text = fmt::format(
      "{:g} s after it was told to stop it has still not saved what came since the newest "
      "checkpoint ({} steps are done); {}",
      grace, ledger.page().step.load(), newest_if_told(checkpoints));
  if (communicator.size() > 1) {
    ledger.fail(text, static_cast<int>(ExitCode::kResumable), /*from_a_peer=*/false);
    std::this_thread::sleep_for(std::chrono::seconds(5));  // by then a watchdog has ended it
  }
  std::fprintf(stderr, "trireme: %s\n", text.c_str());
}

}  // namespace trireme::train
