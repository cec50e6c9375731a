// A file of weights, which may come from elsewhere.
#include "trainer/checkpoint/safetensors.h"

#include <vector>

#include "tests/fuzz/fuzz.h"

using trireme::DataError;
using trireme::Shape;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const trireme::fuzz::MemoryFile file(trireme::fuzz::text_of(data, size));
  trireme::fuzz::refuse_with<trireme::DataError>([&] {
    const trireme::train::SafetensorsReader reader(file.path());
    for (const std::string& name : reader.names()) {
      trireme::fuzz::refuse_with<trireme::DataError>([&] { reader.read(name); });
      for (const trireme::Shape& shape :
           {trireme::Shape{}, trireme::Shape{2}, trireme::Shape{2, 3}, trireme::Shape{0}}) {
        std::vector<float> values(static_cast<size_t>(shape.elements()));
        trireme::fuzz::refuse_with<trireme::DataError>([&] { reader.read(name, shape, values); });
      }
    }
  });
  return 0;
}
