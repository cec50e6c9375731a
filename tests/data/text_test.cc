#include <gmock/gmock.h>

#include "data/external_data.h"
#include "tests/data/files.h"

namespace trireme::data {
namespace {

using testing::config_error;
using testing::data_error;
using ::testing::ElementsAre;
using testing::Folder;
using testing::gzip;
using testing::sample;
using testing::values;

class TextTest : public ::testing::Test {
 protected:
  std::unique_ptr<Dataset> open(const std::string& text, const std::string& more = "",
                                Part part = Part::kTraining) const {
    return open_dataset(config(text, more), part);
  }
  DataConfig config(const std::string& text, const std::string& more = "") const {
    return folder.config("text { train_file: 'a.txt' " + text + "} " + more);
  }
  // Returns the concatenated names of the tokens.
  static std::string decoded(const Dataset& dataset, const std::vector<std::byte>& tokens) {
    std::string text;
    for (const int32_t token : values<int32_t>(tokens)) {
      text += dataset.class_names().at(static_cast<size_t>(token));
    }
    return text;
  }
  static std::string input(const Dataset& dataset, int64_t index) {
    return decoded(dataset, sample(dataset, index).input);
  }
  static std::string target(const Dataset& dataset, int64_t index) {
    return decoded(dataset, sample(dataset, index).target);
  }
  Folder folder;
};

TEST_F(TextTest, CharactersAreNumberedByCodePoint) {
  // näh€⏎n😀h, aha, behind a byte order mark
  folder.write("a.txt", "\xef\xbb\xbfn\xc3\xa4h\xe2\x82\xac\nn\xf0\x9f\x98\x80h, aha");
  const auto dataset = open("length: 4");
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->spec().input, (TensorSpec{DType::kI32, Shape{4}, {}}));
  EXPECT_EQ(dataset->spec().classes, 9);
  EXPECT_THAT(dataset->class_names(), ElementsAre("\\n", " ", ",", "a", "h", "n", "\xc3\xa4",
                                                  "\xe2\x82\xac", "\xf0\x9f\x98\x80"));
  EXPECT_EQ(input(*dataset, 0), "n\xc3\xa4h\xe2\x82\xac");
  EXPECT_EQ(target(*dataset, 0), "\xc3\xa4h\xe2\x82\xac\\n");
  EXPECT_EQ(input(*dataset, 2), ", ah");
  EXPECT_EQ(target(*dataset, 2), " aha");
  EXPECT_TRUE(dataset->in_memory());
  EXPECT_SAYS(dataset->description(), "a.txt: 3 samples of 4 tokens with vocab_size 9");
}

TEST_F(TextTest, Bytes) {
  folder.write("a.txt", "a\xff\n!b");
  const auto dataset = open("length: 2 vocabulary: BYTES");
  ASSERT_EQ(dataset->size(), 2);
  EXPECT_EQ(dataset->spec().classes, 256);
  EXPECT_THAT(values<int32_t>(sample(*dataset, 0).input), ElementsAre('a', 0xff));
  EXPECT_EQ(target(*dataset, 0), "0xff\\n");
  EXPECT_EQ(dataset->class_names().size(), 256u);
}

TEST_F(TextTest, HoldsOutTheEnd) {
  folder.write("a.txt", "abcdefghijklmnopqrstuvwxyz");
  const auto training = open("length: 4", "holdout: 0.2");  // 21 and 5 characters
  const auto evaluation = open("length: 4", "holdout: 0.2", Part::kEvaluation);
  ASSERT_EQ(training->size(), 5);
  ASSERT_EQ(evaluation->size(), 1);
  EXPECT_EQ(target(*training, 4), "rstu");
  EXPECT_EQ(input(*evaluation, 0), "vwxy");
  EXPECT_EQ(target(*evaluation, 0), "wxyz");
  EXPECT_NO_THROW(check_compatible(*training, *evaluation));
  // The last window may be incomplete.
  const auto three = open("length: 4", "holdout: 0.1", Part::kEvaluation);
  ASSERT_EQ(three->size(), 1);
  EXPECT_EQ(input(*three, 0), "xyaa");  // token 0 is 'a'
  EXPECT_THAT(values<int32_t>(sample(*three, 0).target), ElementsAre(24, 25, -100, -100));
  EXPECT_SAYS(data_error(config("length: 4", "holdout: 0.04"), Part::kEvaluation),
              "has 1 characters for this part, but a sample needs 4");
}

TEST_F(TextTest, EvaluationUsesTheVocabularyOfTraining) {
  folder.write("a.txt", "abcdef\n");
  folder.write("e.txt", "fed\nfed\nbee");
  const auto evaluation = open("length: 2 eval_file: 'e.txt'", "", Part::kEvaluation);
  EXPECT_EQ(evaluation->size(), 5);
  EXPECT_EQ(evaluation->spec().classes, 7);
  EXPECT_EQ(evaluation->spec().bytes_per_token, 1);
  EXPECT_EQ(input(*evaluation, 4), "be");
}

TEST_F(TextTest, OtherTextsForEvaluationHaveTheSameCharacters) {
  folder.write("a.txt", "abcabcabc");
  const auto training = open("length: 3");
  const auto evaluation = [&](const std::string& text) {
    folder.write("other/a.txt", text);
    const DataConfig other = config_for_path(config("length: 3", "holdout: 0.5"), training->spec(),
                                             folder.path("other"));
    return with_training_classes(open_dataset(other, Part::kEvaluation), training->spec(),
                                 training->class_names());
  };
  EXPECT_EQ(evaluation("ccbbaaccbbaa")->spec().bytes_per_token, 1);
  EXPECT_SAYS(testing::message<DataError>([&] { evaluation("abdabdabd"); }),
              "its vocabulary is not that of the training text");
}

TEST_F(TextTest, FilesWithAbsolutePathsAreNotLookedForInAnotherFolder) {
  folder.write("a.txt", "abcabcabc");
  DataConfig run = config("length: 3");
  run.mutable_text()->set_train_file(folder.path("a.txt"));
  EXPECT_SAYS(testing::message<ConfigError>([&] { config_for_path(run, {}, folder.path("")); }),
              "which is not looked for in another folder");
}

TEST_F(TextTest, UnknownCharacters) {
  folder.write("a.txt", "abcdef\n");
  folder.write("e.txt",
               "fed\nf\xc3\xa4"
               "d\nbee");
  const std::string files = "length: 2 eval_file: 'e.txt'";
  EXPECT_SAYS(data_error(config(files), Part::kEvaluation),
              folder.path("e.txt") + ": line 2: '\xc3\xa4' (U+00E4) does not occur in " +
                  folder.path("a.txt"));
  const auto evaluation = open(files, "on_bad_record: SKIP", Part::kEvaluation);
  EXPECT_EQ(evaluation->size(), 4);
  EXPECT_EQ(evaluation->bad_records().count, 1);
  EXPECT_EQ(input(*evaluation, 1), "d\\n");
  EXPECT_EQ(input(*evaluation, 2), "d\\n");
  EXPECT_SAYS(evaluation->where(2), "character 6");
}

TEST_F(TextTest, RejectsInvalidUtf8) {
  for (const auto& [text, at] : std::initializer_list<std::pair<std::string, int>>{
           {"ab\x80", 2},  // a continuation byte
           {"\xef\xbb\xbfg\xff", 4},
           {"a\xc0\xafz", 1},  // overlong
           {"a\xe0\x80\xaf", 1},
           {"a\xf0\x80\x80\xaf", 1},
           {"\xed\xa0\x80", 0},      // a UTF-16 surrogate
           {"\xf4\x90\x80\x80", 0},  // beyond Unicode
           {"\xff", 0},
           {"abc\xe2\x82", 3},  // truncated
           {"abc\xe2(\xac", 3}}) {
    folder.write("a.txt", text);
    for (const char* policy : {"", "on_bad_record: SKIP"}) {
      EXPECT_SAYS(data_error(config("length: 1", policy)),
                  folder.path("a.txt") + ": is not UTF-8 at byte " + std::to_string(at) + ";");
    }
  }
}

TEST_F(TextTest, DamagedGzip) {
  const std::string zipped = gzip("to be or not to be, that is the question");
  folder.write("a.txt.gz", zipped);
  EXPECT_EQ(open("length: 4")->size(), 9);
  folder.write("a.txt.gz", zipped.substr(0, zipped.size() - 9));
  EXPECT_SAYS(data_error(config("length: 4")), "a.txt.gz: gzip stream ends early");
  const auto dataset = open("length: 4", "on_bad_record: SKIP");
  EXPECT_EQ(dataset->bad_records().count, 1);
  EXPECT_EQ(input(*dataset, 0), "to b");
}

TEST_F(TextTest, LargerThanMemory) {
  folder.write("a.txt", "");
  std::error_code error;
  std::filesystem::resize_file(folder.path("a.txt"), uintmax_t{1} << 43, error);  // sparse
  if (error) GTEST_SKIP() << "the file system has no files of 8 TiB";
  EXPECT_SAYS(data_error(config("length: 2")), "a.txt: has 8.0 TiB, but ");
}

TEST_F(TextTest, TooShort) {
  folder.write("a.txt", "abcd");
  EXPECT_SAYS(data_error(config("length: 4")),
              "has 4 characters for this part, but a sample needs 4");
  folder.write("a.txt", "aaaaaaa");
  EXPECT_SAYS(data_error(config("length: 4")), "has fewer than 2 different characters");
  folder.write("a.txt", "");
  EXPECT_SAYS(data_error(config("length: 4")), "has fewer than 2 different characters");
}

TEST_F(TextTest, Tokenizer) {
  folder.write("vocab.txt", "[UNK]\na\nb\n##c\n");
  folder.write("a.txt", "a bc b\nx a bc\n");
  const std::string tokenizer = "tokenizer { wordpiece {} } ";
  const auto dataset = open("length: 3 " + tokenizer);
  ASSERT_EQ(dataset->size(), 2);
  EXPECT_EQ(dataset->spec().classes, 4);
  EXPECT_THAT(values<int32_t>(sample(*dataset, 0).input), ElementsAre(1, 2, 3));
  EXPECT_THAT(values<int32_t>(sample(*dataset, 0).target), ElementsAre(2, 3, 2));
  EXPECT_THAT(values<int32_t>(sample(*dataset, 1).target), ElementsAre(0, 1, 2));
  EXPECT_DOUBLE_EQ(dataset->spec().bytes_per_token, 14.0 / 8);
  EXPECT_TRUE(dataset->class_names().empty());
  ASSERT_NE(dataset->tokenizer(), nullptr);
  EXPECT_SAYS(dataset->description(),
              "2 samples of 3 tokens with vocab_size 4, WordPiece with 4 tokens, 1 tokens at the "
              "end unused");
  EXPECT_TRUE(dataset->where(1).ends_with("a.txt: token 3"));
  const auto held_out = open("length: 3 " + tokenizer, "holdout: 0.5", Part::kEvaluation);
  EXPECT_THAT(values<int32_t>(sample(*held_out, 0).input), ElementsAre(0, 1, 2));

  EXPECT_SAYS(config_error(config("vocabulary: BYTES " + tokenizer)),
              "data.text.vocabulary: cannot be combined with data.text.tokenizer");
  EXPECT_SAYS(data_error(config("length: 9 " + tokenizer)),
              "has 8 tokens for this part, but a sample needs 9");
  folder.write("a.txt", "a b\xff");
  EXPECT_SAYS(data_error(config(tokenizer)), "a.txt: is not UTF-8 at byte 3");
}

TEST_F(TextTest, BadConfiguration) {
  folder.write("a.txt", "abcd");
  EXPECT_SAYS(config_error(folder.config("text {}")), "data.text.train_file: is missing");
  EXPECT_SAYS(config_error(config("length: 0")), "data.text.length: 0 is not in [1, ");
  EXPECT_SAYS(config_error(config("length: 1"), Part::kEvaluation),
              "data.text.eval_file: is missing; set it, or set data.holdout");
  EXPECT_SAYS(config_error(config("eval_file: 'e'", "holdout: 0.1")),
              "data.text.eval_file: cannot be combined with data.holdout");
  EXPECT_SAYS(data_error(config("eval_file: 'e'"), Part::kEvaluation), "has no file e");
}

}  // namespace
}  // namespace trireme::data
