// A file of events as TensorBoard reads it: TFRecords, each a length, its checksum, the bytes and
// theirs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "trainer/report/sinks/appended_file.h"
#include "trainer/report/sinks/event.pb.h"

namespace trireme::train {

// CRC-32C (Castagnoli).
uint32_t crc32c(std::string_view bytes);

// Appends one record.
void append_record(std::string_view bytes, std::string& to);

// A new file in the folder that TensorBoard reads after those which are there. Throws Error.
class EventFile {
 public:
  explicit EventFile(const std::filesystem::path& folder);
  void add(const tensorboard::Event& event);
  void flush() { file_.flush(); }

 private:
  AppendedFile file_;
};

}  // namespace trireme::train
