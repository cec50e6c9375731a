// The exceptions of the program. Every failure that is reported to the user is one of these: `main`
// prints its message once and returns its exit code. No other code prints failures or ends the
// process.
#pragma once

#include <stdexcept>
#include <string>

namespace trireme {

// Exit codes of the program. A process killed by signal n exits with 128+n.
enum class ExitCode : int {
  kDone = 0,
  kFailure = 1,
  kBadConfig = 2,
  kBadData = 3,
  kResumable = 75,     // stopped by a signal after saving a checkpoint; rerun to continue
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

// An invalid configuration or command line. `where` is "FILE:LINE: field.path", or the part of it
// that is known.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message) : Error(message, ExitCode::kBadConfig) {}
  ConfigError(const std::string& where, const std::string& message)
      : Error(where + ": " + message, ExitCode::kBadConfig) {}
};

// A data file is missing, truncated or invalid. `where` is "FILE" or "FILE: record N". Both may
// contain text of the file; the message of the exception is printable().
class DataError : public Error {
 public:
  DataError(const std::string& where, const std::string& message);
};

// A call to a device or one of its libraries failed. `call` is the failed call.
class DeviceError : public Error {
 public:
  DeviceError(const std::string& call, const std::string& message)
      : Error(call + " failed: " + message) {}
};

// Communication with another rank failed.
class CommError : public Error {
 public:
  using Error::Error;
};

}  // namespace trireme
