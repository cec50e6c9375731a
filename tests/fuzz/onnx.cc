// An ONNX model from an untrusted source.
#include "model/onnx/onnx.h"

#include "core/error.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const trireme::fuzz::MemoryFile file(trireme::fuzz::text_of(data, size));
  trireme::fuzz::accept_or_throw<trireme::DataError>([&] {
    trireme::fuzz::accept_or_throw<trireme::ConfigError>([&] {
      const trireme::model::OnnxModel model = trireme::model::read_onnx(file.path());
      trireme::fuzz::require(model.network.layer_size() > 0, "a network has a loss");
    });
  });
  return 0;
}
