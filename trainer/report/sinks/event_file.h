// A TensorBoard event file: a sequence of TFRecords. Each is a length, the CRC of the length, the
// bytes, and the CRC of the bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "trainer/report/sinks/appended_file.h"
#include "trainer/report/sinks/event.pb.h"

namespace trireme::train {

// Returns the CRC-32C (Castagnoli) checksum.
uint32_t crc32c(std::string_view bytes);

// Appends one TFRecord.
void append_record(std::string_view bytes, std::string& to);

// A new event file that TensorBoard reads after those already in the folder. The constructor and
// flush() throw Error if the file cannot be written.
class EventFile {
 public:
  explicit EventFile(const std::filesystem::path& folder);
  void add(const tensorboard::Event& event);
  void flush() { file_.flush(); }

 private:
  AppendedFile file_;
};

}  // namespace trireme::train
