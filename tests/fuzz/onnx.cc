// A model of another program, which may come from anywhere.
#include "model/onnx/onnx.h"

#include "core/error.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const trireme::fuzz::MemoryFile file(trireme::fuzz::text_of(data, size));
  trireme::fuzz::refuse_with<trireme::DataError>([&] {
    trireme::fuzz::refuse_with<trireme::ConfigError>([&] {
      const trireme::model::OnnxModel model = trireme::model::read_onnx(file.path());
      trireme::fuzz::require(model.network.layer_size() > 0, "a network has a loss");
    });
  });
  return 0;
}
