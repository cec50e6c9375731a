// Small talk between ranks about strings and errors: for start-up, shut-down and checks, never for
// the step. Host memory; blocking; with nothing else of the communicator in flight.
#pragma once

#include <exception>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/error.h"

namespace trireme::comm {

// By rank.
std::vector<std::string> all_gather(Communicator& communicator, const std::string& text);
std::string broadcast(Communicator& communicator, std::string text, int root);
// In place.
void sum(Communicator& communicator, std::span<double> values);

// A failure that every rank knows of and throws: none waits for another, so all can leave in order.
class AgreedError : public Error {
 public:
  AgreedError(const std::string& message, ExitCode code, int rank)
      : Error(message, code), rank_(rank) {}
  int rank() const { return rank_; }  // the lowest on which it happened

 private:
  int rank_;
};

// All ranks call it after a stage that may have failed on some (null: it did not). If it failed
// anywhere, every rank throws AgreedError with the message and exit code of the lowest rank that
// failed; the message names that rank unless all failed.
void agree(Communicator& communicator, std::exception_ptr failure);

// Runs the stage, then agrees on its outcome.
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
