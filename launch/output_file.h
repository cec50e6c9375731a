// The file, or standard output, that a command writes results to.
#pragma once

#include <cstdio>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/file.h"
#include "trainer/config/config.pb.h"
#include "trainer/config/run_folder.h"

namespace trireme::cli {

// Throw ConfigError if the output of a command is also its input, which would be lost: the file
// `input`, a file of the run, or one that the configuration names. Devices and inodes are compared,
// so that links and other names of the file count. Every command calls these for what it reads.
void require_another_file(const std::string& out, const std::string& input);
void require_another_file(const std::string& out, const train::RunFolder& run);
void require_another_file(const std::string& out, const RunConfig& config);

// Results that are written while they are computed. A file appears when it is complete (NewFile); a
// link to a file remains a link.
class OutputFile {
 public:
  // An empty path, "-" or another name of standard output is standard output; pipes, terminals and
  // other devices are written to directly. All functions throw Error that names the file if it
  // cannot be written.
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const std::string& text);
  // Makes what has been written visible to readers, except of a file.
  void flush();
  // Call at the end, since the last bytes may not have been written yet.
  void finish();

 private:
  Error failure() const;

  std::string name_;             // for messages
  std::FILE* stream_ = nullptr;  // null for a file
  std::optional<NewFile> file_;
  std::string buffer_;  // not yet written to file_
};

}  // namespace trireme::cli
