// Helpers of the libFuzzer targets. A parser must either accept its input or reject it with the
// documented exception.
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

// Aborts unless `holds`, a property that must hold for every input. `what` describes it.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

// A file in memory.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : file_(memfd_create("fuzz", MFD_CLOEXEC)) {
    require(file_ >= 0 &&
                write(file_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
            "creating a file in memory succeeds");
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

// Runs `parse` and ignores exceptions of type E. Other exceptions end the target.
template <class E, class Parse>
void accept_or_throw(Parse parse) {
  try {
    parse();
  } catch (const E&) {
    // The input was rejected as documented.
  }
}

}  // namespace trireme::fuzz
