// Blocking exchange of strings, numbers and errors between ranks, for startup, shutdown and checks,
// never for training steps. The communicator must be one for host memory, with no other operation
// in flight. All ranks must call each function.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/error.h"

namespace trireme::comm {

// Returns the text of each rank, by rank.
std::vector<std::string> all_gather(Communicator& communicator, const std::string& text);
// Returns the text that `root` passed.
std::string broadcast(Communicator& communicator, std::string text, int root);
// Replaces each value with its sum over all ranks.
void sum(Communicator& communicator, std::span<double> values);
// Returns the largest value of any rank.
int64_t max(Communicator& communicator, int64_t value);

// An error that all ranks throw together: no rank is waiting for another, so all can shut down
// cleanly.
class AgreedError : public Error {
 public:
  AgreedError(const std::string& message, ExitCode code, int rank)
      : Error(message, code), rank_(rank) {}
  int rank() const { return rank_; }  // the lowest rank that failed

 private:
  int rank_;
};

// Exchanges the outcome of a stage that may have failed on some ranks; `failure` is null on ranks
// where it succeeded. If it failed on any rank, throws AgreedError on every rank, with the message
// and exit code of the lowest rank that failed. The message names that rank unless all ranks
// failed.
void agree(Communicator& communicator, std::exception_ptr failure);

// Runs `stage` and then calls agree() with its outcome.
template <class F>
void together(Communicator& communicator, F&& stage) {
  std::exception_ptr failure;
  try {
    stage();
  } catch (...) {
    failure = std::current_exception();
  }
  agree(communicator, failure);
}

}  // namespace trireme::comm
