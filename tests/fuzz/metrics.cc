// metrics.jsonl of a run that goes on: its lines up to a step stay.
#include "core/file.h"
#include "tests/fuzz/fuzz.h"
#include "trainer/report/sinks/jsonl.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = trireme::fuzz::text_of(data, size);
  const trireme::fuzz::MemoryFile file(text);
  { const trireme::train::JsonlSink metrics(file.path(), 5); }
  const std::string kept = trireme::read_text(file.path());
  trireme::fuzz::require(text.starts_with(kept), "only the end is cut off");
  trireme::fuzz::require(kept.empty() || kept.ends_with('\n'), "whole lines stay");
  return 0;
}
