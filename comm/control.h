// Small talk between ranks about strings and errors: for start-up, shut-down and checks, never for the
// step. Host memory; blocking.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/error.h"

namespace trireme {

std::vector<std::string> all_gather(Communicator& communicator, const std::string& text);
std::string broadcast(Communicator& communicator, std::string text, int root);

// An error that every rank throws together, so that one of them can tell it and all can end in peace. Any
// other error that leaves a rank has left the rest waiting.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// All ranks call it after a stage that may have failed on some (null: it did not). If it failed
// anywhere, every rank throws AgreedError with the message and exit code of the lowest rank that failed; with
// several ranks the message names the rank when it is not the failure of all of them.
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

}  // namespace trireme
