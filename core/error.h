// Every failure that reaches a user is one of these. `main` turns them into one message and the
// exit code; nothing else prints a failure or ends the process.
#pragma once

#include <stdexcept>
#include <string>

namespace trireme {

// Exit codes of the program. 128+n: killed by signal n.
enum class ExitCode : int {
  kDone = 0,
  kFailure = 1,
  kBadConfig = 2,
  kBadData = 3,
  kResumable = 75,     // stopped by a signal after saving; run again to go on
  kDoNotRequeue = 76,  // no progress over several restarts
};

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode code = ExitCode::kFailure)
      : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// The configuration or the command line asks for something that cannot be. `where` is
// "FILE:LINE: field.path", as much of it as is known.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message) : Error(message, ExitCode::kBadConfig) {}
  ConfigError(const std::string& where, const std::string& message)
      : Error(where + ": " + message, ExitCode::kBadConfig) {}
};

// A data file is missing, cut short or not what it claims to be. `where` is "FILE" or "FILE: record
// N".
class DataError : public Error {
 public:
  DataError(const std::string& where, const std::string& message)
      : Error(where + ": " + message, ExitCode::kBadData) {}
};

// A device or a library on it refused; `call` is the call that failed.
class DeviceError : public Error {
 public:
  DeviceError(const std::string& call, const std::string& message)
      : Error(call + " failed: " + message) {}
};

// Talking to the other ranks failed.
class CommError : public Error {
 public:
  using Error::Error;
};

}  // namespace trireme
