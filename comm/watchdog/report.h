// The last messages of a process, which bypass stdio, whose locks may be held by a stuck thread.
#pragma once

#include <filesystem>
#include <string>

namespace trireme::comm {

// Opens the log of a rank for appending; returns -1 if that fails. Async-signal-safe.
int open_log(const char* log);
// Prints the text to stderr and appends it to the log of this rank, if there is one (see
// WatchOptions::log). If that fails, there is nowhere to report it.
void report(const std::string& text, const std::filesystem::path& log);

}  // namespace trireme::comm
