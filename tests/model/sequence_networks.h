// Networks for sequences that are exported to ONNX and imported again.
#pragma once

#include <string>
#include <vector>

#include "model/onnx/onnx.h"
#include "tests/model/harness.h"

namespace trireme::model {

struct SequenceNetwork {
  std::string name;
  ModelConfig config;
  ModelInput input;
};

inline constexpr int64_t kSequenceRows = 4;

inline ModelConfig zoo_with(const std::string& options) {
  ModelConfig config;
  const std::string size = " blocks: 2 width: 24 ";
  if (!google::protobuf::TextFormat::ParseFromString("zoo { " + options + size + "}", &config)) {
    throw Error("bad: " + options);
  }
  return config;
}

inline std::vector<SequenceNetwork> sequence_networks() {
  const std::string kLoss = "layer { name: 'loss' softmax_cross_entropy {} }";
  const ModelInput words = token_input(12, 9), labeled = labeled_tokens(12, 9, 5);
  const ModelInput images = classified({3, 8, 12}, 5);
  ModelInput bytes = images;
  bytes.scale = 1.0F / 255;
  bytes.mean = {0.4F, 0.5F, 0.6F};
  bytes.stddev = {0.25F};
  return {
      {"gpt", zoo_with("name: 'gpt-mini' heads: 3 dropout: 0.1"), words},
      {"gpt_positions", zoo_with("name: 'gpt-mini' heads: 3 max_length: 20"), words},
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
      {"lstm", zoo_with("name: 'lstm'"), words},
      {"lstm_both",
       network("layer { name: 'e' embedding { units: 6 } }"
               "layer { name: 'r' lstm { hidden: 7 layers: 2 bidirectional: true } }"
               "layer { name: 'd' dense {} }" +
               kLoss),
       words},
      {"gru",
       network("layer { name: 'e' embedding { units: 6 } }"
               "layer { name: 'r' gru { hidden: 9 layers: 3 dropout: 0.1 } }"
               "layer { name: 'd' dense {} }" +
               kLoss),
       words},
      {"gru_both",
       network("layer { name: 'e' embedding { units: 6 } }"
               "layer { name: 'r' gru { hidden: 5 bidirectional: true } }"
               "layer { name: 'm' token_pool { mode: MEAN padding_token: 1 } }"
               "layer { name: 'd' dense { units: 5 } }" +
               kLoss),
       labeled},
  };
}

// Gives the network random values, and returns them.
inline Weights set_random_values(TestNetwork& net) {
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
  return weights;
}

// Returns tokens with padding (1) at the end of all but the first sample; the last is all padding.
inline std::vector<int32_t> padded_tokens(const ModelInput& input) {
  const int64_t length = input.input.shape[0];
  const Random random(3, RandomPurpose::kSynthetic);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < kSequenceRows * length; ++i) {
    const bool padding =
        i % length >= length * (kSequenceRows - 1 - i / length) / (kSequenceRows - 1);
    const auto vocab_size = static_cast<uint32_t>(input.vocabulary());
    tokens.push_back(padding ? 1 : static_cast<int32_t>(random.bits(i) % vocab_size));
  }
  return tokens;
}

}  // namespace trireme::model
