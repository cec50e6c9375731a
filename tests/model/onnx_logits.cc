// Writes networks for sequences as ONNX models, with inputs and the logits of the reference:
//   onnx_logits FOLDER
// NAME.onnx, NAME.input (i64 or f32) and NAME.logits (f32), of kRows samples.
// tests/model/onnx_sequences_test.py runs the models in ONNX Runtime.
#include <cstdio>

#include "model/onnx/onnx.h"
#include "tests/model/onnx_files.h"

namespace trireme::model {
namespace {

constexpr int64_t kRows = 4;
const std::string kLoss = "layer { name: 'loss' softmax_cross_entropy {} }";

struct Case {
  std::string name;
  ModelConfig config;
  ModelInput input;
};

ModelConfig zoo_with(const std::string& options) {
  ModelConfig config;
  const std::string size = " blocks: 2 width: 24 ";
  if (!google::protobuf::TextFormat::ParseFromString("zoo { " + options + size + "}", &config)) {
    throw Error("bad: " + options);
  }
  return config;
}

std::vector<Case> all_cases() {
  const ModelInput words = token_input(12, 9), labeled = labeled_tokens(12, 9, 5);
  const ModelInput images = classified({3, 8, 12}, 5);
  ModelInput bytes = images;
  bytes.scale = 1.0F / 255;
  bytes.mean = {0.4F, 0.5F, 0.6F};
  bytes.stddev = {0.25F};
  return {
      {"gpt", zoo_with("name: 'gpt-mini' heads: 3 dropout: 0.1"), words},
      {"gpt_documents", zoo_with("name: 'gpt-mini' heads: 2 document_end: 3"), words},
      {"llama", zoo_with("name: 'llama-mini' heads: 4"), words},
      {"grouped",
       network(
           "layer { name: 'e' embedding { units: 16 positions: SINUSOIDAL } }"
           "layer { name: 'n' rms_norm { epsilon: 0.001 } } layer { name: 'p' dense { units: 48 } }"
           "layer { name: 'a' attention { heads: 6 kv_heads: 3 causal: true padding_token: 1 "
           "document_end: 2 rotary { base: 50 } } }"
           "layer { name: 'o' dense { units: 16 } } layer { name: 'r' add {} input: 'e' input: 'o' "
           "}"
           "layer { name: 'u' dense { units: 20 bias: false } } layer { name: 's' swiglu {} }"
           "layer { name: 'w' dense { units: 16 } } layer { name: 'g' gelu_tanh {} }"
           "layer { name: 'h' dense { bias: false tied_to: 'e' } }" +
           kLoss),
       words},
      {"bert", zoo_with("name: 'bert-mini' heads: 4 padding_token: 1 segment_end: 2"), labeled},
      {"bert_mean", zoo_with("name: 'bert-mini' heads: 4 padding_token: 1 pooling: MEAN"), labeled},
      {"bert_plain", zoo_with("name: 'bert-mini' heads: 2"), labeled},
      {"bert_words", zoo_with("name: 'bert-mini' heads: 2 padding_token: 1 segment_end: 2"), words},
      {"vit", zoo_with("name: 'vit-tiny' heads: 3 patch: 4"), bytes},
      {"vit_mean", zoo_with("name: 'vit-tiny' heads: 2 patch: 2 pooling: MEAN"), images},
      {"pools",
       network(
           "layer { name: 't' to_sequence {} } layer { name: 'c' class_token { positions: false } }"
           "layer { name: 'm' token_pool { mode: MEAN } } layer { name: 'd' dense { units: 5 } }" +
           kLoss),
       images},
      {"skipped",
       network("layer { name: 'e' embedding { units: 8 } }"
               "layer { name: 'm' token_pool { mode: MEAN skip: 2 padding_token: 1 } }"
               "layer { name: 'd' dense { units: 5 } }" +
               kLoss),
       labeled},
  };
}

// Returns tokens with padding (1) at the end of all but the first sample; the last is all padding.
std::vector<int32_t> padded_tokens(const ModelInput& input) {
  const int64_t length = input.input.shape[0];
  const Random random(3, RandomPurpose::kSynthetic);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < kRows * length; ++i) {
    const bool padding = i % length >= length * (kRows - 1 - i / length) / (kRows - 1);
    const auto vocab_size = static_cast<uint32_t>(input.vocabulary());
    tokens.push_back(padding ? 1 : static_cast<int32_t>(random.bits(i) % vocab_size));
  }
  return tokens;
}

template <class T>
void write(const std::string& path, const std::vector<T>& values) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
}

void write_case(const std::string& folder, const Case& c) {
  TestNetwork net(c.config, c.input, reference(),
                  {.batch = kRows, .training = false, .output = true});
  Weights weights;
  const Random random(11, RandomPurpose::kSynthetic);
  uint64_t index = 0;
  for (const Parameter& parameter : net.parameters.all) {
    Weight& weight = weights[parameter.name];
    weight.shape = parameter.spec.shape;
    const bool frozen = parameter.init.kind == Initializer::Kind::kSinusoidal;
    if (frozen) weight.values = net.value(parameter);
    const bool around_one = parameter.name.find("norm") != std::string::npos;
    for (int64_t i = 0; !frozen && i < weight.shape.elements(); ++i) {
      weight.values.push_back((around_one ? 1 : 0) + 0.3F * random.normal_at(index++));
    }
    net.set_value(parameter, weight.values);
  }
  TestBatch batch(c.input, kRows, 5);
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
  for (const auto& one : trireme::model::all_cases()) {
    trireme::model::write_case(argv[1], one);
    std::printf("%s\n", one.name.c_str());
  }
  return 0;
}
