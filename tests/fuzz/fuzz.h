// What the targets of libFuzzer share: bytes as a file, bytes that say how to read the rest, and
// what a parser may do with them: take them, or refuse them with the one error that it names.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace trireme::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// A property that must hold, whatever the input.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

// A file in memory, with the bytes in it.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : file_(memfd_create("fuzz", MFD_CLOEXEC)) {
    require(file_ >= 0 &&
                write(file_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
            "a file in memory");
  }
  ~MemoryFile() { close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  static constexpr const char* kFolder = "/proc/self/fd";
  std::string name() const { return std::to_string(file_); }
  std::string path() const { return std::string(kFolder) + "/" + name(); }

 private:
  int file_;
};

// Reads; what is refused is refused by an E.
template <class E, class Parse>
void refuse_with(Parse parse) {
  try {
    parse();
  } catch (const E&) {
    // As it should be.
  }
}

}  // namespace trireme::fuzz
