// Writes networks for sequences as ONNX models, with inputs and the logits of the reference:
//   onnx_logits FOLDER
// NAME.onnx, NAME.input (i64 or f32) and NAME.logits (f32), of kSequenceRows samples.
// tests/model/onnx_sequences_test.py runs the models in ONNX Runtime.
#include <cstdio>
#include <fstream>

#include "tests/model/sequence_networks.h"

namespace trireme::model {
namespace {

template <class T>
void write(const std::string& path, const std::vector<T>& values) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
}

void write_case(const std::string& folder, const SequenceNetwork& c) {
  TestNetwork net(c.config, c.input, reference(),
                  {.batch = kSequenceRows, .training = false, .output = true});
  const Weights weights = set_random_values(net);
  TestBatch batch(c.input, kSequenceRows, 5);
  const std::string path = folder + "/" + c.name;
  if (c.input.input.dtype == DType::kI32) {
    const std::vector<int32_t> tokens = padded_tokens(c.input);
    batch.set_tokens(tokens);
    write(path + ".input", std::vector<int64_t>(tokens.begin(), tokens.end()));
  } else {
    write(path + ".input", batch.inputs);
  }
  net.run(batch);
  write(path + ".logits", net.output());
  std::ofstream(path + ".onnx", std::ios::binary) << to_onnx(c.config, c.input, weights);
}

}  // namespace
}  // namespace trireme::model

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: onnx_logits FOLDER\n");
    return 2;
  }
  for (const auto& one : trireme::model::sequence_networks()) {
    trireme::model::write_case(argv[1], one);
    std::printf("%s\n", one.name.c_str());
  }
  return 0;
}
