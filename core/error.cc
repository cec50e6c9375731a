#include "core/error.h"

#include "core/text.h"

namespace trireme {
namespace {

constexpr size_t kMaxBytes = 2000;  // of each part of a message

}  // namespace

DataError::DataError(const std::string& where, const std::string& message)
    : Error(printable(where, kMaxBytes) + ": " + printable(message, kMaxBytes),
            ExitCode::kBadData) {}

}  // namespace trireme
