// End-to-end tests of `trireme generate` with a network that has learned the alphabet by heart.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/launch/program.h"
#include "trainer/infer/generator.h"

namespace trireme::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr const char* kAlphabet = "abcdefghijklmnopqrstuvwxyz\n";

// Trains the network once for all tests, and then deletes its text.
class GenerateTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = new Scratch;
    std::string text;
    for (int i = 0; i < 100; ++i) text += kAlphabet;
    const auto file = scratch_->write("text.txt", text);
    const auto config = scratch_->write("run.txtpb", fmt::format(R"(
      model {{ zoo {{ name: "gpt-mini" blocks: 1 width: 32 heads: 2 }} }}
      data {{ text {{ train_file: "{}" length: 30 random_offset: true }} holdout: 0.1 }}
      batch {{ global: 10 }} train {{ epochs: 8 device: "cpu" }}
      optimizer {{ adamw {{}} }} schedule {{ learning_rate: 0.02 }}
    )",
                                                                 file));
    trained_ = run({"train", config, "--run-dir", folder()});
    std::filesystem::remove(file);
  }
  static void TearDownTestSuite() { delete scratch_; }
  void SetUp() override { ASSERT_EQ(trained_.code, 0) << trained_.error; }

  static std::string folder() { return (*scratch_ / "run").string(); }
  static Outcome generate(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"generate", folder()});
    return run(arguments);
  }
  static std::vector<Json> lines(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--format", "jsonl"});
    const Outcome outcome = generate(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    std::vector<Json> parsed;
    std::istringstream in(outcome.out);
    for (std::string line; std::getline(in, line);) parsed.push_back(Json::parse(line));
    return parsed;
  }

  static Scratch* scratch_;
  static Outcome trained_;
};
Scratch* GenerateTest::scratch_ = nullptr;
Outcome GenerateTest::trained_;

TEST_F(GenerateTest, ContinuesThePrompt) {
  const Outcome outcome =
      generate({"--prompt", "xyz\nabc", "--max-tokens", "40", "--temperature", "0"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  // Longer than the 30 tokens that the network reads at a time.
  EXPECT_EQ(outcome.out, "xyz\nabcdefghijklmnopqrstuvwxyz\nabcdefghijklmnop\n");
}

TEST_F(GenerateTest, ReadsPromptsFromAFile) {
  const std::string file = scratch_->write("prompts", "abc\r\nklm\nhijklm\n");
  const std::vector<std::string> greedy{"--prompts",     file, "--max-tokens", "6",
                                        "--temperature", "0",  "--batch"};
  for (const char* batch : {"1", "2", "8"}) {
    std::vector<std::string> arguments = greedy;
    arguments.emplace_back(batch);
    const std::vector<Json> all = lines(arguments);
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[0]["text"], "defghi");
    EXPECT_EQ(all[1]["prompt"], "klm");
    EXPECT_EQ(all[2]["text"], "nopqrs");
    EXPECT_EQ(all[2]["tokens"], (Json{14, 15, 16, 17, 18, 19}));  // '\n' is 0
    EXPECT_EQ(all[2]["finish_reason"], "length");
  }
  const Outcome text =
      generate({"--prompt", "ab", "--prompt", "no", "--max-tokens", "2", "--temperature", "0"});
  EXPECT_EQ(text.out, "abcd\n----\nnopq\n----\n");
  const Outcome same = generate({"--prompts", file, "-o", file});
  EXPECT_EQ(same.code, 2);
  EXPECT_THAT(same.error, HasSubstr("is also an input, which would be lost"));
}

TEST_F(GenerateTest, StopsBeforeAString) {
  const std::vector<std::string> arguments{"--prompt", "abc", "--temperature", "0",
                                           "--stop",   "qrs", "--stop",        "jkl"};
  EXPECT_EQ(generate(arguments).out, "abcdefghi\n");
  const Json line = lines(arguments)[0];
  EXPECT_EQ(line["finish_reason"], "stop");
  EXPECT_EQ(line["text"], "defghi");
  EXPECT_EQ(line["tokens"], (Json{4, 5, 6, 7, 8, 9}));  // without those of the stop string
}

// A network that has learned that <|endoftext|>, 256, and the characters abcx>y follow one another.
TEST_F(GenerateTest, ReadsSpecialTokensAndStopsAtTheEndOfATextOfATokenizer) {
  std::vector<std::string> names;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte < 127) || (byte > 160 && byte != 173);
    const int code = itself ? byte : next++;
    names.push_back(code < 128 ? std::string(1, static_cast<char>(code))
                               : std::string{static_cast<char>(0xc0 | code >> 6),
                                             static_cast<char>(0x80 | (code & 0x3f))});
  }
  names.emplace_back("<|endoftext|>");
  Json vocab;
  for (size_t i = 0; i < names.size(); ++i) vocab[names[i]] = i;
  scratch_->write("vocab.json", vocab.dump());
  scratch_->write("merges.txt", "#version: 0.2\n");
  std::string tokens;
  for (int i = 0; i < 200; ++i) {
    for (const int token : {256, int{'a'}, int{'b'}, int{'c'}, int{'x'}, int{'>'}, int{'y'}}) {
      tokens += {static_cast<char>(token & 0xff), static_cast<char>(token >> 8)};
    }
  }
  const auto file = scratch_->write("tokens.bin", tokens);
  const auto train = [&](const std::string& name, const std::string& kind,
                         const std::string& layers) {
    const auto config =
        scratch_->write(name + ".txtpb", fmt::format(R"(
      model {{ network {{ layer {{ embedding {{ units: 24 }} }} {}
        layer {{ dense {{}} }} layer {{ softmax_cross_entropy {{}} }} }} }}
      data {{ root: "{}" tokens {{ train: "tokens.bin" eval: "tokens.bin" length: 16 {} }} }}
      batch {{ global: 10 }} train {{ max_steps: 40 device: "cpu" }}
      optimizer {{ adamw {{}} }} schedule {{ learning_rate: 0.05 }}
    )",
                                                     layers, scratch_->path().string(), kind));
    const std::string folder = (*scratch_ / name).string();
    const Outcome outcome = run({"train", config, "--run-dir", folder});
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    return folder;
  };
  const std::string folder = train("bpe", "tokenizer { bpe {} }", "");
  const auto generated = [](const std::string& run_of, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"generate", run_of, "--temperature", "0", "--max-tokens",
                                         "9", "--format", "jsonl"});
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    return Json::parse(outcome.out);
  };
  const Json line = generated(folder, {"--prompt", "xa<|endoftext|>"});
  EXPECT_EQ(line["text"], "abcx>y");
  EXPECT_EQ(line["tokens"], (Json{'a', 'b', 'c', 'x', '>', 'y'}));
  EXPECT_EQ(line["finish_reason"], "stop");
  EXPECT_EQ(run({"generate", folder, "--prompt", "b", "--temperature", "0"}).out, "bcx>y\n");
  // As text, it ends with '>'.
  EXPECT_EQ(generated(folder, {"--prompt", "xa<|endoftext|>", "--no-special"})["text"], "y");
  // Without a tokenizer, the end of a document is that of the network.
  const std::string ids =
      train("ids", "vocab_size: 257", "layer { lstm { hidden: 16 document_end: 256 } }");
  EXPECT_EQ(generated(ids, {"--prompt", "97"})["finish_reason"], "stop");
}

TEST_F(GenerateTest, TheSeedDeterminesTheText) {
  const auto text = [](const char* seed, const char* batch) {
    std::vector<std::string> all;
    for (const Json& one : lines({"--prompt", "abc", "--prompt", "abc", "--temperature", "9",
                                  "--seed", seed, "--batch", batch})) {
      all.push_back(one["text"]);
    }
    return all;
  };
  const auto first = text("1", "2");
  EXPECT_EQ(first, text("1", "2"));
  EXPECT_EQ(first, text("1", "1"));
  EXPECT_NE(first, text("2", "2"));
  EXPECT_NE(first[0], first[1]);
}

// An LSTM carries its state from token to token, across parts of prompts and beyond the 30 tokens
// of a window.
TEST_F(GenerateTest, ContinuesWithTheStateOfAnLstm) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += kAlphabet;
  const std::string file = scratch_->write("lstm.txt", text);
  const auto train = [&](const std::string& name, const std::string& bidirectional) {
    const auto config = scratch_->write(name + ".txtpb", fmt::format(R"(
      model {{ network {{ layer {{ embedding {{ units: 16 }} }}
        layer {{ lstm {{ hidden: 32 layers: 2 {} }} }} layer {{ gru {{ hidden: 32 }} }}
        layer {{ dense {{}} }} layer {{ softmax_cross_entropy {{}} }} }} }}
      data {{ text {{ train_file: "{}" length: 30 random_offset: true }} holdout: 0.1 }}
      batch {{ global: 10 }} train {{ epochs: 12 device: "cpu" }}
      optimizer {{ adamw {{}} }} schedule {{ learning_rate: 0.02 }}
    )",
                                                                     bidirectional, file));
    const std::string folder = (*scratch_ / name).string();
    const Outcome outcome = run({"train", config, "--run-dir", folder});
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    return folder;
  };
  const Outcome outcome = run({"generate", train("lstm", ""), "--prompt", "xyz\nabc", "--prompt",
                               "m", "--max-tokens", "40", "--temperature", "0"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(outcome.out,
            "xyz\nabcdefghijklmnopqrstuvwxyz\nabcdefghijklmnop\n----\n"
            "mnopqrstuvwxyz\nabcdefghijklmnopqrstuvwxyz\n----\n");
  // The tokens drawn depend on the position and on all tokens before.
  const auto continued = [&](const std::string& prompt, const std::string& count) {
    const Outcome drawn = run({"generate", (*scratch_ / "lstm").string(), "--prompt", prompt,
                               "--max-tokens", count, "--temperature", "4"});
    EXPECT_EQ(drawn.code, 0) << drawn.error;
    return drawn.out;
  };
  const std::string drawn = continued("abc", "120");
  EXPECT_EQ(continued(drawn.substr(0, 70), "53"), drawn);
  const Outcome refused = run({"generate", train("both", "bidirectional: true"), "--prompt", "a"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.error, HasSubstr("lstm reads later tokens, too, so the network cannot "
                                       "generate any; it is bidirectional"));
  const Outcome exported =
      run({"export", (*scratch_ / "lstm").string(), (*scratch_ / "lstm.onnx").string()});
  EXPECT_EQ(exported.code, 0) << exported.error;
}

TEST_F(GenerateTest, OtherCommandsKnowLanguageModels) {
  const Outcome predicted = run({"predict", folder(), folder()});
  EXPECT_EQ(predicted.code, 2);
  EXPECT_THAT(predicted.error, HasSubstr("use trireme generate"));
  const Outcome exported = run({"export", folder(), (*scratch_ / "x.onnx").string()});
  EXPECT_EQ(exported.code, 0) << exported.error;
  const Outcome names =
      run({"export", folder(), (*scratch_ / "x.safetensors").string(), "--names", "huggingface"});
  EXPECT_EQ(names.code, 2);
  EXPECT_THAT(names.error, HasSubstr("--names: gpt-mini has no names there that Trireme writes"));
}

TEST_F(GenerateTest, RefusesNetworksThatDoNotPredictTokens) {
  const std::string table = scratch_->write("table.csv", "a,b,label\n1,2,0\n2,1,1\n3,1,1\n1,3,0\n");
  const auto config = scratch_->write("table.txtpb", fmt::format(R"(
    model {{ network {{ layer {{ dense {{ units: 2 }} }} layer {{ softmax_cross_entropy {{}} }} }} }}
    data {{ csv {{ train_file: "{0}" eval_file: "{0}" }} }}
    batch {{ global: 2 }} train {{ max_steps: 0 device: "cpu" }}
    optimizer {{ sgd {{}} }} schedule {{ learning_rate: 0.1 }}
  )",
                                                                 table));
  const std::string folder = (*scratch_ / "table").string();
  ASSERT_EQ(run({"train", config, "--run-dir", folder}).code, 0);
  const Outcome outcome = run({"generate", folder, "--prompt", "1 2"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.error, HasSubstr("does not predict tokens, so it cannot generate any"));
}

TEST_F(GenerateTest, RefusesNetworksThatReadSegments) {
  const std::string file = scratch_->write("segments.txt", std::string(400, 'a') + "b");
  const auto config = scratch_->write("segments.txtpb", fmt::format(R"(
      model {{ network {{ layer {{ embedding {{ units: 8 segments: 2 segment_end: 1 }} }}
        layer {{ dense {{ units: 2 }} }} layer {{ softmax_cross_entropy {{}} }} }} }}
      data {{ text {{ train_file: "{}" length: 10 }} holdout: 0.1 }}
      batch {{ global: 10 }} train {{ max_steps: 0 device: "cpu" }}
      optimizer {{ sgd {{}} }} schedule {{ learning_rate: 0.1 }}
    )",
                                                                    file));
  const std::string folder = (*scratch_ / "segments").string();
  ASSERT_EQ(run({"train", config, "--run-dir", folder}).code, 0);
  const Outcome outcome = run({"generate", folder, "--prompt", "a"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.error, HasSubstr("embedding.segment_end reads segments of whole samples"));
}

// Outputs that stand for no token of the data, as of a padded vocabulary.
TEST_F(GenerateTest, IgnoresOutputsWithoutAToken) {
  const std::string file = scratch_->write("more.txt", std::string(400, 'a') + "b");
  const auto config = scratch_->write("more.txtpb", fmt::format(R"(
      model {{ network {{ name: "padded" layer {{ embedding {{ units: 8 }} }}
        layer {{ dense {{ units: 4096 }} }} layer {{ softmax_cross_entropy {{}} }} }} }}
      data {{ text {{ train_file: "{}" length: 10 }} holdout: 0.1 }}
      batch {{ global: 10 }} train {{ max_steps: 0 device: "cpu" }}
      optimizer {{ sgd {{}} }} schedule {{ learning_rate: 0.1 }}
    )",
                                                                file));
  const std::string padded = (*scratch_ / "padded").string();
  ASSERT_EQ(run({"train", config, "--run-dir", padded}).code, 0);
  const Outcome outcome = run({"generate", padded, "--prompt", "a", "--max-tokens", "200"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(outcome.out.find_first_not_of("ab\n"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.size(), 202u);
}

TEST_F(GenerateTest, ReportsInvalidPrompts) {
  const auto expect_error = [](const std::vector<std::string>& arguments, int code,
                               const std::string& message) {
    const Outcome outcome = generate(arguments);
    EXPECT_EQ(outcome.code, code);
    EXPECT_THAT(outcome.error, HasSubstr(message));
    EXPECT_EQ(outcome.out, "");
  };
  expect_error({}, 2, "--prompt: is missing");
  expect_error({"--prompt", ""}, 3, "prompt 1: is empty");
  expect_error({"--prompt", "abc", "--prompt", "ab\xc3\xa4"}, 3,
               "prompt 2: '\xc3\xa4' (byte 2) is not in the vocabulary");
  expect_error({"--prompt", std::string(31, 'a')}, 3,
               "prompt 1: has 31 tokens, but the network reads at most 30");
  expect_error({"--prompts", "/no/such/file"}, 3, "/no/such/file: cannot be read");
  expect_error({"--prompts", scratch_->path().string()}, 3,
               "is a folder; name a file with one prompt");
  expect_error({"--prompts", "/dev/zero"}, 3, "/dev/zero: is larger than 64 MiB");
  using std::string_literals::operator""s;
  expect_error({"--prompts", scratch_->write("nul", "ab\0c\n"s)}, 3,
               "prompt 1: '\\x00' (byte 2) is not in the vocabulary");
  expect_error({"--prompt", "a", "--temperature", "-1"}, 2, "--temperature");
  for (const char* seed : {"-1", "18446744073709551616", "0x10"}) {
    expect_error({"--prompt", "a", "--seed", seed}, 2,
                 fmt::format("must be an integer from 0 to 18446744073709551615, got {}", seed));
  }
  expect_error({"--prompt", "a", "--top-p", "1.5"}, 2, "--top-p");
}

TEST(SampleToken, FollowsTheSettings) {
  using train::sample_token;
  const std::vector<float> logits{0, std::log(4.0f), 0, std::log(2.0f)};  // 1/8, 4/8, 1/8, 2/8
  const auto at = [&](double random, const train::Sampling& sampling = {}) {
    return sample_token(logits, sampling, random);
  };
  EXPECT_EQ(at(0.99, {.temperature = 0}), 1);
  // The most probable tokens come first.
  EXPECT_EQ(at(0.49), 1);
  EXPECT_EQ(at(0.51), 3);
  EXPECT_EQ(at(0.74), 3);
  EXPECT_EQ(at(0.76), 0);
  EXPECT_EQ(at(0.88), 2);
  EXPECT_EQ(at(0.99, {.top_k = 1}), 1);
  EXPECT_EQ(at(0.65, {.top_k = 2}), 1);
  EXPECT_EQ(at(0.68, {.top_k = 2}), 3);
  EXPECT_EQ(at(0.99, {.top_k = 9}), 2);
  EXPECT_EQ(at(0.99, {.top_p = 0.4}), 1);
  EXPECT_EQ(at(0.99, {.top_p = 0.7}), 3);
  EXPECT_EQ(at(0.99, {.top_p = 0}), 1);
  // At half the temperature, probabilities are squared: 1/22, 16/22, 1/22, 4/22.
  EXPECT_EQ(at(0.72, {.temperature = 0.5}), 1);
  EXPECT_EQ(at(0.74, {.temperature = 0.5}), 3);
  EXPECT_THROW(sample_token(std::vector<float>{0, std::nanf("")}, {}, 0.5), Error);
}

}  // namespace
}  // namespace trireme::testing
