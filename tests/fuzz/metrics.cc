// metrics.jsonl of a resumed run: the lines up to a step are retained.
#include <filesystem>
#include <fstream>

#include "core/file.h"
#include "tests/fuzz/fuzz.h"
#include "trainer/report/sinks/jsonl.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = trireme::fuzz::text_of(data, size);
  // Not a file in memory, because a link to one is refused.
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("metrics-" + std::to_string(getpid()));
  std::ofstream(path, std::ios::binary) << text;
  { const trireme::train::JsonlSink metrics(path, 5); }
  const std::string retained = trireme::read_text(path);
  std::filesystem::remove(path);
  trireme::fuzz::require(text.starts_with(retained), "only the end is removed");
  trireme::fuzz::require(retained.empty() || retained.ends_with('\n'),
                         "only complete lines are retained");
  return 0;
}
