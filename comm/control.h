// Small talk between ranks about strings and errors: for start-up, shut-down and checks, never for the
// step. Host memory; blocking.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace trireme {

std::vector<std::string> all_gather(Communicator& communicator, const std::string& text);
std::string broadcast(Communicator& communicator, std::string text, int root);

// All ranks call it after a stage that may have failed on some (null: it did not). If it failed
// anywhere, every rank throws the error of the lowest rank that failed, with its exit code and, on
// other ranks, the failing rank in the message, so that one message tells the cause.
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
