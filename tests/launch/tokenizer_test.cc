// End-to-end tests of tokenizers: a run keeps the one that it was trained with.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/launch/program.h"

namespace trireme::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace fs = std::filesystem;

class TokenizerTest : public ::testing::Test {
 protected:
  TokenizerTest() {
    std::string text;
    for (int i = 0; i < 300; ++i) {
      text += fmt::format("the cat and the dog {} eat {} mice\n", i, i * i % 89);
    }
    scratch.write("text.txt", text);
  }
  std::string path(const std::string& name) const { return (scratch / name).string(); }
  // Writes a configuration that trains on the text with a tokenizer.
  std::string config(const std::string& tokenizer) const {
    return scratch.write("run.txtpb", fmt::format(R"(
      model {{ zoo {{ name: "gpt-mini" blocks: 1 width: 16 heads: 2 }} }}
      data {{ root: "{}" text {{ train_file: "text.txt" length: 16 tokenizer {{ {} }} }}
             holdout: 0.1 }}
      batch {{ global: 8 }} train {{ max_steps: 3 device: "cpu" }}
      optimizer {{ adamw {{}} }} schedule {{ learning_rate: 0.01 }}
    )",
                                                  scratch.path().string(), tokenizer));
  }
  Outcome train_tokenizer(const std::string& name, const std::string& vocab_size) const {
    return run({"data", "tokenizer", "--vocab", vocab_size, "--type", "bpe", "-o", path(name),
                path("text.txt")});
  }
  Scratch scratch;
};

TEST_F(TokenizerTest, RunsKeepIt) {
  const Outcome tokenizer = train_tokenizer("a.model", "330");
  ASSERT_EQ(tokenizer.code, 0) << tokenizer.error;
  EXPECT_THAT(tokenizer.out, StartsWith(path("a.model") + ": SentencePiece with 330 tokens, "));
  EXPECT_THAT(tokenizer.out, HasSubstr("tokenizer { sentencepiece { model: \"" + path("a.model")));
  const std::string by_a = config("sentencepiece { model: 'a.model' }");
  const Outcome trained = run({"train", by_a, "--run-dir", path("run")}, 2);
  ASSERT_EQ(trained.code, 0) << trained.error;
  EXPECT_THAT(trained.out, HasSubstr("SentencePiece with 330 tokens"));

  ASSERT_EQ(train_tokenizer("b.model", "335").code, 0);
  const Outcome resumed = run({"train", config("sentencepiece { model: 'b.model' }"), "--run-dir",
                               path("run"), "--set", "train.max_steps=4"});
  EXPECT_NE(resumed.code, 0);  // the network has another size
  const Outcome evaluated = run({"eval", path("run")});
  EXPECT_EQ(evaluated.code, 0) << evaluated.error;
  fs::remove(scratch / "a.model");
  fs::create_directory(scratch / "other");
  fs::rename(scratch / "text.txt", scratch / "other/text.txt");
  EXPECT_EQ(run({"eval", path("run"), "--data", path("other")}).out, evaluated.out);
  const Outcome file = run({"eval", path("run"), "--data", path("other/text.txt")});
  EXPECT_EQ(file.code, 2);
  EXPECT_THAT(file.error, HasSubstr("is not a folder; language models are evaluated on a folder"));
  const std::vector<std::string> generate{"generate", path("run"), "--prompt",     "the cat",
                                          "--seed",   "3",         "--max-tokens", "5"};
  const Outcome generated = run(generate);
  ASSERT_EQ(generated.code, 0) << generated.error;
  EXPECT_THAT(generated.out, StartsWith("the cat"));

  fs::copy_file(scratch / "b.model", scratch / "run/tokenizer/tokenizer.model",
                fs::copy_options::overwrite_existing);
  const Outcome other = run(generate);
  EXPECT_EQ(other.code, 3);
  EXPECT_THAT(other.error, HasSubstr("run/tokenizer: is not the tokenizer that the run was trained "
                                     "with: it is SentencePiece with 335 tokens, hash "));
}

TEST_F(TokenizerTest, ARunDoesNotResumeWithAnotherOne) {
  scratch.write("vocab.txt", "[UNK]\nthe\ncat\nand\ndog\neat\nmice\n");
  const std::string by_vocab = config("wordpiece {}");
  ASSERT_EQ(run({"train", by_vocab, "--run-dir", path("run")}).code, 0);
  scratch.write("vocab.txt", "[UNK]\nthe\ndog\nand\ncat\neat\nmice\n");
  const Outcome resumed =
      run({"train", by_vocab, "--run-dir", path("run"), "--set", "train.max_steps=4"});
  EXPECT_EQ(resumed.code, 3);
  EXPECT_THAT(resumed.error, HasSubstr("the data has changed since it was saved: training "
                                       "tokenizer: WordPiece with 7 tokens, hash "));
  const Outcome generated = run({"generate", path("run"), "--prompt", "dog", "--max-tokens", "2"});
  EXPECT_EQ(generated.code, 0) << generated.error;
  const Outcome invalid = run({"generate", path("run"), "--prompt", "dog\xff"});
  EXPECT_EQ(invalid.code, 3);
  EXPECT_THAT(invalid.error, HasSubstr("prompt 1: is not UTF-8 at byte 3"));
}

TEST_F(TokenizerTest, TablesAreLabeledTexts) {
  fs::copy_file(scratch / "text.txt", scratch / "text.csv");
  const Outcome outcome =
      run({"data", "tokenizer", "--vocab", "330", "-o", path("a.model"), path("text.csv")});
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("labeled_text {\n    train: \"" + path("text.csv")));
}

TEST_F(TokenizerTest, TrainingErrorsAreNamed) {
  const Outcome large = train_tokenizer("a.model", "8000");
  EXPECT_EQ(large.code, 1);
  EXPECT_THAT(large.error,
              HasSubstr("the SentencePiece library reports: Vocabulary size too high"));
  scratch.write("text.txt", "a\xff");
  const Outcome invalid = train_tokenizer("a.model", "300");
  EXPECT_EQ(invalid.code, 3);
  EXPECT_THAT(invalid.error, HasSubstr("text.txt: is not UTF-8 at byte 1"));
  EXPECT_EQ(train_tokenizer("a.model", "20").code, 2);
  const Outcome same = train_tokenizer("text.txt", "300");
  EXPECT_EQ(same.code, 2);
  EXPECT_THAT(same.error, HasSubstr("text.txt is also an input, which would be lost"));
}

}  // namespace
}  // namespace trireme::testing
