// A file that is seen when it is whole.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/files/descriptor.h"

namespace trireme {

// Written in order as PATH.tmp, over what there may be of either. Every failure throws Error naming
// the file and the cause, a full disk too.
class NewFile {
 public:
  explicit NewFile(const std::string& path);
  // What is not finished is removed.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::span<const uint8_t> bytes);
  void write(const std::string& text) {
    write({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
  uint64_t bytes() const { return bytes_; }  // so far
  // On disk, under its name, when this returns.
  void finish();

 private:
  void flush();

  const std::string path_;
  const std::string temporary_;
  const Descriptor file_;
  std::vector<uint8_t> buffer_;
  uint64_t bytes_ = 0;
  bool finished_ = false;
};

}  // namespace trireme
