#include <gmock/gmock.h>

#include "data/tokenizers/tokenizer.h"
#include "tests/data/files.h"

namespace trireme::data {
namespace {

using testing::Folder;
using testing::message;

// Sentences of few words, so that a small vocabulary suffices.
std::vector<std::string> lines() {
  const std::vector<std::string> words = {"the",
                                          "quick",
                                          "brown",
                                          "fox",
                                          "jumps",
                                          "over",
                                          "lazy",
                                          "dog",
                                          "and",
                                          "wolf",
                                          "Gr\xc3\xbc\xc3\x9f"
                                          "e"};
  std::vector<std::string> all;
  for (size_t i = 0; i < 400; ++i) {
    std::string line;
    for (size_t j = 0; j < 8; ++j) line += words[(i * (j + 3) + j * j) % words.size()] + " ";
    all.push_back(line + std::to_string(i));
  }
  return all;
}

std::string train(int64_t vocab_size, const std::string& type) {
  const std::vector<std::string> all = lines();
  size_t next = 0;
  return train_sentencepiece(vocab_size, type, [&](std::string& line) {
    if (next == all.size()) return false;
    line = all[next++];
    return true;
  });
}

class SentencePieceTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Tokenizer> open() const {
    TokenizerConfig config;
    config.mutable_sentencepiece();
    return open_tokenizer(config, folder.path(), "data.text.tokenizer");
  }
  Folder folder;
};

TEST_F(SentencePieceTest, TrainedModelsPreserveTexts) {
  for (const char* type : {"unigram", "bpe"}) {
    folder.write("tokenizer.model", train(360, type));
    const auto tokenizer = open();
    EXPECT_EQ(tokenizer->vocab_size(), 360);
    EXPECT_EQ(tokenizer->special().unknown, 0);
    EXPECT_EQ(tokenizer->special().begin, 1);
    EXPECT_EQ(tokenizer->special().end, 2);
    EXPECT_EQ(tokenizer->special().pad, 3);
    EXPECT_EQ(tokenizer->description(), "SentencePiece with 360 tokens");
    std::vector<int32_t> wanted = {1};
    for (const int32_t token : tokenizer->encode("the fox")) wanted.push_back(token);
    wanted.push_back(2);
    EXPECT_EQ(tokenizer->encode_with_special("<s>the fox</s>"), wanted) << type;
    for (const std::string& text :
         {std::string("the quick brown fox"), std::string(" two  spaces \n\n and lines\n"),
          std::string("unknown: \xe5\xad\x97 \xf0\x9f\x98\x80 \x01\t"), lines()[7],
          std::string()}) {
      const std::vector<int32_t> tokens = tokenizer->encode(text);
      EXPECT_EQ(tokenizer->decode(tokens), text) << type;
      EXPECT_EQ(tokenizer->encode(text), tokens);
      EXPECT_THAT(tokens, ::testing::Each(::testing::Ge(4))) << type;
    }
    const bool merges = std::string_view(type) == "bpe";
    EXPECT_LE(tokenizer->encode("the quick brown fox").size(), merges ? 6U : 20U);
  }
}

TEST_F(SentencePieceTest, TrainingIsReproducible) {
  EXPECT_EQ(train(320, "bpe"), train(320, "bpe"));
}

TEST_F(SentencePieceTest, IsKept) {
  folder.write("tokenizer.model", train(320, "unigram"));
  const auto tokenizer = open();
  save_tokenizer(*tokenizer, folder.path("kept"));
  const auto kept = open_tokenizer(tokenizer->config(), folder.path("kept"), "tokenizer");
  EXPECT_EQ(kept->identity(), tokenizer->identity());
}

TEST_F(SentencePieceTest, ErrorsAreNamed) {
  EXPECT_SAYS(message<Error>([] { train(100000, "unigram"); }),
              "the SentencePiece library reports: ");
  EXPECT_EQ(
      message<Error>([] { train_sentencepiece(320, "bpe", [](std::string&) { return false; }); }),
      "the texts are empty; a tokenizer is trained on text");
  const std::string model = train(320, "unigram");
  for (const std::string& damaged :
       {std::string(), std::string("not a model"), model.substr(0, model.size() / 2),
        model.substr(0, 7), std::string(1 << 20, '\xff')}) {
    folder.write("tokenizer.model", damaged);
    const std::string error = message<DataError>([&] { open(); });
    EXPECT_SAYS(error, "tokenizer.model: ");
    EXPECT_SAYS(error, "SentencePiece library");
    EXPECT_FALSE(error.ends_with(": ")) << error;  // it says what is wrong
  }
  folder.write("tokenizer.model", model);
  EXPECT_EQ(message<Error>([&] { open()->encode("a\xff"); }), "is not UTF-8 at byte 1");
}

}  // namespace
}  // namespace trireme::data
