#include <gmock/gmock.h>

#include "data/external_data.h"
#include "data/tokenizers/tokenizer.h"
#include "data/unlabeled.h"
#include "tests/data/files.h"

namespace trireme::data {
namespace {

using testing::config_error;
using testing::data_error;
using ::testing::ElementsAre;
using testing::Folder;
using testing::gzip;
using ::testing::IsEmpty;
using testing::message;
using testing::sample;
using testing::values;

// The vocabulary: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, and then these words.
enum Token { kPad, kUnk, kCls, kSep, kGood, kBad, kFilm };

class LabeledTextTest : public ::testing::Test {
 protected:
  LabeledTextTest() { folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\ngood\nbad\nfilm\n"); }
  DataConfig config(const std::string& files, const std::string& more = "") const {
    return folder.config("labeled_text { " + files + " tokenizer { wordpiece {} } length: 5 } " +
                         more);
  }
  std::unique_ptr<Dataset> open(const std::string& files, const std::string& more = "",
                                Part part = Part::kTraining) const {
    return open_dataset(config(files, more), part);
  }
  static std::vector<int32_t> input(const Dataset& dataset, int64_t index) {
    return values<int32_t>(sample(dataset, index).input);
  }
  Folder folder;
};

TEST_F(LabeledTextTest, Table) {
  folder.write(
      "a.csv",
      "id,text,label\n1,Good film,pos\n2,\"bad,\n\"\"bad\"\"\",neg\r\n3,good good good good,"
      "pos\n");
  const auto dataset = open("train: 'a.csv'");
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->spec().input, (TensorSpec{DType::kI32, Shape{5}, {}}));
  EXPECT_EQ(dataset->spec().target, (TensorSpec{DType::kI32, Shape{}, {}}));
  EXPECT_EQ(dataset->spec().classes, 2);
  EXPECT_EQ(dataset->spec().vocab_size, 7);
  EXPECT_THAT(dataset->class_names(), ElementsAre("neg", "pos"));
  EXPECT_THAT(dataset->labels(), ElementsAre(1, 0, 1));
  EXPECT_EQ(sample(*dataset, 0).label(), 1);
  EXPECT_THAT(input(*dataset, 0), ElementsAre(kCls, kGood, kFilm, kSep, kPad));
  EXPECT_THAT(input(*dataset, 1), ElementsAre(kCls, kBad, kUnk, kUnk, kSep));  // cut off
  EXPECT_THAT(input(*dataset, 2), ElementsAre(kCls, kGood, kGood, kGood, kSep));
  EXPECT_TRUE(dataset->where(1).ends_with("a.csv: line 3")) << dataset->where(1);
  EXPECT_TRUE(dataset->where(2).ends_with("a.csv: line 5")) << dataset->where(2);
  EXPECT_SAYS(dataset->description(), "a.csv: 3 samples of 5 tokens in 2 classes, ");
  EXPECT_SAYS(dataset->description(), "WordPiece with 7 tokens, 7% padding, 2 texts cut off");
  EXPECT_EQ(dataset->tokenizer()->vocab_size(), 7);
  EXPECT_TRUE(dataset->in_memory());
}

TEST_F(LabeledTextTest, JsonLines) {
  folder.write("a.jsonl.gz", gzip("{\"text\": \"good\", \"label\": 10}\n"
                                  "{\"label\": 9, \"text\": \"bad\", \"more\": [1]}\n"
                                  "{\"label\": 2, \"text\": \"film\"}\n"));
  const auto dataset = open("train: 'a.jsonl'");
  EXPECT_THAT(dataset->class_names(), ElementsAre("2", "9", "10"));  // integers by their value
  EXPECT_THAT(dataset->labels(), ElementsAre(2, 1, 0));
}

TEST_F(LabeledTextTest, OtherColumns) {
  folder.write("a.tsv", "stars\treview\n1\tbad\n2\tgood, good\n");
  const auto dataset = open("train: 'a.tsv' text_column: 'review' label_column: 'stars'");
  EXPECT_THAT(input(*dataset, 1), ElementsAre(kCls, kGood, kUnk, kGood, kSep));
  EXPECT_SAYS(data_error(config("train: 'a.tsv'")),
              "a.tsv: has no column 'text'; its columns are: stars, review. Set "
              "data.labeled_text.text_column to the name of one");
  folder.write("a.csv", "text,text,label\n");
  EXPECT_SAYS(data_error(config("train: 'a.csv'")), "has more than one column 'text'");
}

TEST_F(LabeledTextTest, FoldersByClass) {
  folder.write("train/pos/2.txt", "good");
  folder.write("train/pos/1.txt", "good film\n");
  folder.write("train/neg/1.txt", "bad");
  folder.write("train/neg/notes.md", "no text of the class");
  folder.write("train/README", "no class");
  const auto dataset = open("train: 'train'");
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_THAT(dataset->class_names(), ElementsAre("neg", "pos"));
  EXPECT_THAT(dataset->labels(), ElementsAre(0, 1, 1));
  EXPECT_TRUE(dataset->where(1).ends_with("train/pos/1.txt"));
  EXPECT_THAT(input(*dataset, 1), ElementsAre(kCls, kGood, kFilm, kSep, kPad));
}

TEST_F(LabeledTextTest, EvaluationTextsHaveTheClassesOfTheTrainingTexts) {
  folder.write("a.csv", "text,label\ngood,pos\nbad,neg\nfilm,other\n");
  folder.write("b.csv", "text,label\nbad,neg\n");
  const std::string files = "train: 'a.csv' eval: 'b.csv'";
  const auto training = open(files), evaluation = open(files, "", Part::kEvaluation);
  EXPECT_EQ(evaluation->class_names(), training->class_names());
  EXPECT_NO_THROW(check_compatible(*training, *evaluation));
  folder.write("b.csv", "text,label\nbad,neg\ngood,poss\n");
  EXPECT_SAYS(data_error(config(files), Part::kEvaluation),
              "b.csv: line 3: label 'poss' is not one of the 3 classes of the training texts; did "
              "you mean 'pos'?");
  const auto skipped = open(files, "on_bad_record: SKIP", Part::kEvaluation);
  EXPECT_EQ(skipped->size(), 1);
  EXPECT_EQ(skipped->bad_records().count, 1);
}

TEST_F(LabeledTextTest, BadRecordsAreNamed) {
  const std::string head = "text,label\ngood,pos\nbad,neg\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\n", "line 4: is empty"},
      {"a\xff,pos\n", "line 4: the text is not UTF-8 at byte 1"},
      {"a,\xff\n", "line 4: the label is not UTF-8 at byte 0"},
      {" ,pos\n", "line 4: the text is empty"},
      {"\x01,pos\n", "line 4: the text has no tokens"},
      {"good,\n", "line 4: the label is empty"},
      {"good\n", "line 4: has 1 fields instead of 2"},
      {"good,pos,\n", "line 4: has 3 fields instead of 2"},
      {"\"good,pos\ngood,neg\n", "line 4: has a quote (\") that is not closed"}};
  for (const auto& [line, problem] : cases) {
    folder.write("a.csv", head + line);
    EXPECT_SAYS(data_error(config("train: 'a.csv'")), "a.csv: " + problem);
    const auto dataset = open("train: 'a.csv'", "on_bad_record: SKIP");
    EXPECT_EQ(dataset->bad_records().count, 1) << problem;
    EXPECT_EQ(dataset->size(), line.starts_with('"') ? 3 : 2) << problem;
  }
}

TEST_F(LabeledTextTest, BadObjectsAreNamed) {
  const std::string head =
      "{\"text\": \"good\", \"label\": 1}\n{\"text\": \"bad\", \"label\": 0}\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\n", "is empty"},
      {"{\"text\": \"good\"\n", "is not a JSON object"},
      {"[]\n", "is not a JSON object"},
      {"{\"text\": \"\xff\"}\n", "is not UTF-8 at byte 10"},
      {"{\"text\": 1, \"label\": 1}\n", "has no text 'text'"},
      {"{\"text\": \"good\", \"label\": 0.5}\n", "has no label 'label': a string or an integer"}};
  for (const auto& [line, problem] : cases) {
    folder.write("a.jsonl", head + line);
    EXPECT_SAYS(data_error(config("train: 'a.jsonl'")), "a.jsonl: line 3: " + problem);
    EXPECT_EQ(open("train: 'a.jsonl'", "on_bad_record: SKIP")->bad_records().count, 1) << problem;
  }
}

TEST_F(LabeledTextTest, InvalidConfigurationsAreNamed) {
  folder.write("a.csv", "text,label\ngood,pos\nbad,neg\n");
  EXPECT_SAYS(config_error(config("")), "data.labeled_text.train: is missing");
  EXPECT_SAYS(config_error(config("train: 'a.csv'"), Part::kEvaluation),
              "data.labeled_text.eval: is missing");
  EXPECT_SAYS(config_error(config("train: 'a.csv' eval: 'a.csv'", "holdout: 0.5")),
              "data.labeled_text.eval: cannot be combined with data.holdout");
  EXPECT_SAYS(config_error(folder.config("labeled_text { train: 'a.csv' }")),
              "data.labeled_text.tokenizer: is missing");
  EXPECT_SAYS(config_error(folder.config(
                  "labeled_text { train: 'a.csv' length: 2 tokenizer { wordpiece {} } }")),
              "data.labeled_text.length: 2 is less than 3");
  EXPECT_SAYS(data_error(config("train: 'vocab.txt'")), "vocab.txt: is not *.csv, *.tsv, *.jsonl");
  folder.write("b.csv", "text,label\ngood,pos\n");
  EXPECT_SAYS(data_error(config("train: 'b.csv'")), "b.csv: has only the label 'pos'");
  folder.write("b.csv", "text,label\n");
  EXPECT_SAYS(data_error(config("train: 'b.csv'")), "b.csv: has no records");
  folder.write("b.csv", "");
  EXPECT_SAYS(data_error(config("train: 'b.csv'")), "b.csv: is empty");
}

TEST_F(LabeledTextTest, HoldsOutTexts) {
  folder.write("a.csv", "text,label\ngood,pos\nbad,neg\nfilm,neg\ngood film,pos\n");
  const auto training = open("train: 'a.csv'", "holdout: 0.25");
  const auto evaluation = open("train: 'a.csv'", "holdout: 0.25", Part::kEvaluation);
  EXPECT_EQ(training->size(), 3);
  EXPECT_EQ(evaluation->size(), 1);
  EXPECT_NE(evaluation->tokenizer(), nullptr);
}

TEST_F(LabeledTextTest, TextsForInferenceNeedNoLabels) {
  folder.write("a.csv", "text,label\ngood,pos\nbad,neg\n");
  const DataConfig trained = config("train: 'a.csv'");
  const SampleSpec spec = open_dataset(trained, Part::kTraining)->spec();
  folder.write("new.csv", "text\nbad film\n\xff\n");
  folder.write("new.txt", "good\nfilm\n");
  folder.write("texts/1.txt", "film");
  const std::vector<std::string> paths{folder.path("new.csv"), folder.path("new.txt"),
                                       folder.path("texts")};
  const auto dataset = open_unlabeled(paths, trained, spec);
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_THAT(input(*dataset, 0), ElementsAre(kCls, kBad, kFilm, kSep, kPad));
  EXPECT_THAT(input(*dataset, 1), ElementsAre(kCls, kGood, kFilm, kSep, kPad));
  EXPECT_THAT(input(*dataset, 2), ElementsAre(kCls, kFilm, kSep, kPad, kPad));
  EXPECT_EQ(dataset->bad_records().count, 1);
  EXPECT_SAYS(message<DataError>(
                  [&] { open_unlabeled(std::vector<std::string>{"/nowhere.txt"}, trained, spec); }),
              "/nowhere.txt: does not exist");
}

TEST_F(LabeledTextTest, OtherTextsForEvaluation) {
  folder.write("a.csv", "text,label\ngood,pos\nbad,neg\nfilm,other\n");
  const auto training = open("train: 'a.csv'", "holdout: 0.4");
  folder.write("b.csv", "text,label\nbad,neg\nfilm,other\n");
  const DataConfig other = config_for_path(config("train: 'a.csv'", "holdout: 0.4"),
                                           training->spec(), folder.path("b.csv"));
  const auto dataset = with_training_classes(open_dataset(other, Part::kEvaluation),
                                             training->spec(), training->class_names());
  ASSERT_EQ(dataset->size(), 2);
  EXPECT_THAT(dataset->labels(), ElementsAre(0, 1));
  EXPECT_EQ(sample(*dataset, 1).label(), 1);
}

}  // namespace
}  // namespace trireme::data
