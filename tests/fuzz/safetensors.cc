// A safetensors file from an untrusted source.
#include "trainer/checkpoint/safetensors.h"

#include <vector>

#include "tests/fuzz/fuzz.h"

using trireme::DataError;
using trireme::Shape;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const trireme::fuzz::MemoryFile file(trireme::fuzz::text_of(data, size));
  trireme::fuzz::accept_or_throw<DataError>([&] {
    const trireme::train::SafetensorsReader reader(file.path());
    for (const std::string& name : reader.names()) {
      trireme::fuzz::accept_or_throw<DataError>([&] { reader.read(name); });
      for (const Shape& shape : {Shape{}, Shape{2}, Shape{2, 3}, Shape{0}}) {
        std::vector<float> values(static_cast<size_t>(shape.elements()));
        trireme::fuzz::accept_or_throw<DataError>([&] { reader.read(name, shape, values); });
      }
    }
  });
  return 0;
}
