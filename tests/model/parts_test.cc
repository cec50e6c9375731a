// Sequences that are read in parts, with a key-value cache, against whole ones.
#include <numeric>

#include "tests/model/harness.h"

namespace trireme::model {
namespace {

constexpr int64_t kRows = 3, kLength = 11, kVocabulary = 7;

const char* const kNetworks[] = {
    R"(layer { embedding { units: 12 positions: LEARNED } }
       layer { layer_norm {} } layer { dense { units: 36 } }
       layer { attention { heads: 3 causal: true document_end: 4 } } layer { dropout {} }
       layer { dense { units: 24 } } layer { gelu_tanh {} } layer { dense { units: 36 } }
       layer { attention { heads: 3 causal: true document_end: 4 } })",
    R"(layer { embedding { units: 8 positions: SINUSOIDAL } } layer { rms_norm {} }
       layer { dense { units: 32 } }
       layer { attention { heads: 4 kv_heads: 2 causal: true rotary {} } }
       layer { dense { units: 20 } } layer { swiglu {} })",
    R"(layer { embedding { units: 8 } } layer { lstm { hidden: 9 layers: 2 dropout: 0.5 } }
       layer { gru { hidden: 6 document_end: 4 } } layer { lstm { hidden: 10 document_end: 4 } })"};

class PartsTest : public testing::TestWithParam<TestTarget> {};

// Returns the logits of whole sequences that are read in parts of these lengths.
std::vector<float> logits_in_parts(TestNetwork& net, const TestBatch& batch,
                                   const std::vector<int64_t>& lengths) {
  std::vector<float> logits(static_cast<size_t>(kRows * kLength * kVocabulary));
  const auto* tokens = reinterpret_cast<const int32_t*>(batch.input_bytes().data());
  Buffer cache;
  int64_t start = 0;
  for (const int64_t length : lengths) {
    const auto program = Program::compile(
        net.graph(), net.backend(),
        {.batch = kRows, .training = false, .output = true, .loss = false, .part = length},
        net.parameters);
    if (!cache.data()) cache = net.device().allocate(program->cache_bytes());
    EXPECT_EQ(cache.bytes(), program->cache_bytes());
    std::vector<int32_t> part;
    for (int64_t row = 0; row < kRows; ++row) {
      part.insert(part.end(), tokens + row * kLength + start,
                  tokens + row * kLength + start + length);
    }
    const std::vector<int32_t> starts(kRows, static_cast<int32_t>(start));
    std::vector<float> output(static_cast<size_t>(kRows * length * kVocabulary));
    const Buffer activations = net.device().allocate(program->activation_bytes());
    const Buffer input = net.on_device(std::as_bytes(std::span(part)));
    const Buffer positions = net.on_device(std::as_bytes(std::span(starts)));
    const Buffer result = net.device().allocate(output.size() * sizeof(float));
    Context context(*program, net.arrays(), activations.data());
    context.bind(Port::kInput, input.data());
    context.bind(Port::kStarts, positions.data());
    context.bind(Port::kCache, cache.data());
    context.bind(Port::kOutput, result.data());
    context.forward(net.stream());
    net.device().copy(output.data(), result.data(), result.bytes(), net.stream());
    net.stream().synchronize();
    for (int64_t row = 0; row < kRows; ++row) {
      std::copy_n(output.begin() + row * length * kVocabulary, length * kVocabulary,
                  logits.begin() + (row * kLength + start) * kVocabulary);
    }
    start += length;
  }
  EXPECT_EQ(start, kLength);
  return logits;
}

TEST_P(PartsTest, EqualWholeSequences) {
  for (const char* layers : kNetworks) {
    const ModelInput input = token_input(kLength, kVocabulary);
    const ModelConfig config = network(std::string(layers) + "layer { dense { units: 7 } }" +
                                       "layer { softmax_cross_entropy {} }");
    TestNetwork net(config, input, GetParam(),
                    {.batch = kRows, .training = false, .output = true, .loss = false});
    const TestBatch batch(input, kRows, 1);
    net.run(batch);
    const std::vector<float> whole = net.output();
    for (const std::vector<int64_t>& lengths :
         {std::vector<int64_t>{11}, {4, 1, 1, 5}, std::vector<int64_t>(kLength, 1)}) {
      EXPECT_LT(relative_error(logits_in_parts(net, batch, lengths), whole), GetParam().gradient);
    }
  }
}

// Two windows of sequences, of which the second begins with the states after the first, are the
// whole sequences. Half of the rows are computed at a time.
TEST_P(PartsTest, CarriedStatesContinueSequences) {
  constexpr int64_t kSequences = 4, kWindow = 5, kMicro = 2;
  const ModelConfig config = network(
      "layer { embedding { units: 8 } }"
      "layer { name: 'a' lstm { hidden: 9 layers: 2 dropout: 0.5 stateful: true } }"
      "layer { name: 'b' gru { hidden: 6 stateful: true document_end: 4 } }"
      "layer { dense { units: 7 } } layer { softmax_cross_entropy {} }");
  const ModelInput all = token_input(2 * kWindow, kVocabulary);
  TestNetwork net(config, all, GetParam(),
                  {.batch = kSequences, .training = false, .output = true, .loss = false});
  const TestBatch batch(all, kSequences, 1);
  net.run(batch);
  const std::vector<float> whole = net.output();

  TestNetwork windows(
      config, token_input(kWindow, kVocabulary), GetParam(),
      {.batch = kMicro, .training = false, .output = true, .loss = false, .carry_states = true});
  size_t row_bytes = 0;
  std::vector<std::string> names;
  for (const CarriedState& state : windows.program->carried_states()) {
    row_bytes += state.row_bytes;
    names.push_back(state.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a.l0", "a.l1", "b.l0"}));
  const std::vector<std::byte> zeros(kSequences * row_bytes);
  Buffer before = windows.on_device(zeros), after = windows.on_device(zeros);
  const Buffer activations = windows.device().allocate(windows.program->activation_bytes());
  const auto* tokens = reinterpret_cast<const int32_t*>(batch.input_bytes().data());
  constexpr size_t kOutputs = kMicro * kWindow * kVocabulary;
  for (int64_t window = 0; window < 2; ++window) {
    for (int64_t first = 0; first < kSequences; first += kMicro) {
      std::vector<int32_t> input;
      std::vector<float> wanted, output(kOutputs);
      for (int64_t row = first; row < first + kMicro; ++row) {
        const int64_t begin = (2 * row + window) * kWindow;
        input.insert(input.end(), tokens + begin, tokens + begin + kWindow);
        wanted.insert(wanted.end(), whole.begin() + begin * kVocabulary,
                      whole.begin() + (begin + kWindow) * kVocabulary);
      }
      const Buffer read = windows.on_device(std::as_bytes(std::span(input)));
      const Buffer result = windows.device().allocate(kOutputs * sizeof(float));
      Context context(*windows.program, windows.arrays(), activations.data());
      context.bind(Port::kInput, read.data());
      context.bind(Port::kOutput, result.data());
      context.bind_states(before.data(), after.data(), kSequences, first);
      context.forward(windows.stream());
      windows.device().copy(output.data(), result.data(), result.bytes(), windows.stream());
      windows.stream().synchronize();
      EXPECT_LT(relative_error(output, wanted), GetParam().gradient) << window << " " << first;
    }
    std::swap(before, after);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, PartsTest, testing::ValuesIn(targets()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace trireme::model
