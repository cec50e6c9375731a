#include <gmock/gmock.h>

#include <map>

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

TEST_F(LabeledTextTest, NegativeIntegersAreSortedByValue) {
  folder.write("a.csv", "text,label\ngood,10\nbad,-1\nfilm,2\ngood,9\nbad,-10\n");
  EXPECT_THAT(open("train: 'a.csv'")->class_names(), ElementsAre("-10", "-1", "2", "9", "10"));
  folder.write("a.csv", "text,label\ngood,10\nbad,-\nfilm,2\n");
  EXPECT_THAT(open("train: 'a.csv'")->class_names(), ElementsAre("-", "10", "2"));
}

TEST_F(LabeledTextTest, OtherFieldsOfJsonLinesMayHaveAnyValue) {
  folder.write(
      "a.jsonl",
      "{\"more\": [{\"text\": 1, \"label\": {}}, 2], \"text\": \"good\", \"label\": 1}\n"
      "{\"text\": \"bad\", \"more\": {\"text\": \"film\"}, \"label\": 0, \"last\": null}\n");
  const auto dataset = open("train: 'a.jsonl'");
  ASSERT_EQ(dataset->size(), 2);
  EXPECT_THAT(dataset->labels(), ElementsAre(1, 0));
  EXPECT_THAT(input(*dataset, 0), ElementsAre(kCls, kGood, kSep, kPad, kPad));
  EXPECT_THAT(input(*dataset, 1), ElementsAre(kCls, kBad, kSep, kPad, kPad));
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
  folder.write("train/pos/2.TXT", "good");
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

TEST_F(LabeledTextTest, AClassWithoutTextsIsABadRecord) {
  folder.write("train/pos/1.txt", "good");
  folder.write("train/neg/1.txt", "bad");
  folder.write("train/other/1.text", "film");
  EXPECT_SAYS(data_error(config("train: 'train'")),
              "train/other: class 'other' has no texts (.txt)");
  const auto skipped = open("train: 'train'", "on_bad_record: SKIP");
  EXPECT_THAT(skipped->class_names(), ElementsAre("neg", "pos"));
  EXPECT_EQ(skipped->bad_records().count, 1);
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
      {std::string(1 << 20, ',') + "\n", "line 4: has more than 1048576 columns"},
      {"\"good,pos\ngood,neg\n", "line 4: has a quote (\") that is not closed"},
      {"\"good,pos\ngood \"bad,neg\n", "line 4: has text after a closing quote (\")"}};
  for (const auto& [line, problem] : cases) {
    folder.write("a.csv", head + line);
    EXPECT_SAYS(data_error(config("train: 'a.csv'")), "a.csv: " + problem);
    const auto dataset = open("train: 'a.csv'", "on_bad_record: SKIP");
    EXPECT_EQ(dataset->bad_records().count, 1) << problem;
    EXPECT_EQ(dataset->size(), line.starts_with('"') ? 3 : 2) << problem;
  }
}

TEST_F(LabeledTextTest, QuotesMayHaveNoMeaning) {
  folder.write("a.tsv", "label\ttext\npos\t\"good film\nneg\tbad\"\npos\tgood\nneg\t\"bad\"\n");
  const auto dataset = open("train: 'a.tsv' quoted_fields: false");
  ASSERT_EQ(dataset->size(), 4);
  EXPECT_THAT(dataset->labels(), ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(input(*dataset, 0), ElementsAre(kCls, kUnk, kGood, kFilm, kSep));
  EXPECT_THAT(input(*dataset, 3), ElementsAre(kCls, kUnk, kBad, kUnk, kSep));
  EXPECT_SAYS(data_error(config("train: 'a.tsv'")),
              "a.tsv: line 2: has a quote (\") that is closed in another row; if the field is "
              "right, set data.labeled_text.quoted_fields: true; if quotes have no meaning in this "
              "table, set data.labeled_text.quoted_fields: false");
  folder.write("a.tsv", "label\ttext\npos\t\"good\nfilm\"\nneg\t\"bad\tfilm\"\n");
  EXPECT_EQ(open("train: 'a.tsv'")->size(), 2);
}

TEST_F(LabeledTextTest, AQuotedFieldWithATabAndALineBreakIsReadIfQuotesAreStated) {
  folder.write("a.tsv", "label\ttext\npos\t\"good\tfilm\nbad\"\nneg\tbad\n");
  EXPECT_SAYS(data_error(config("train: 'a.tsv'")), "set data.labeled_text.quoted_fields: true");
  const auto dataset = open("train: 'a.tsv' quoted_fields: true");
  ASSERT_EQ(dataset->size(), 2);
  EXPECT_THAT(input(*dataset, 0), ElementsAre(kCls, kGood, kFilm, kBad, kSep));
}

TEST_F(LabeledTextTest, BadObjectsAreNamed) {
  const std::string head =
      "{\"text\": \"good\", \"label\": 1}\n{\"text\": \"bad\", \"label\": 0}\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\n", "is empty"},
      {"{\"text\": \"good\"\n", "is not valid JSON"},
      {"[]\n", "is not a JSON object but of type array"},
      {"{\"text\": \"\xff\"}\n", "is not UTF-8 at byte 10"},
      {"{\"text\": [\"good\", [1]], \"label\": 1}\n",
       "the text 'text' is not a string but of type array"},
      {"{\"text\": \"good\", \"label\": {\"text\": 1}}\n",
       "the label 'label' is not a string, an integer or a boolean but of type object"},
      {"{\"texts\": {\"text\": \"good\"}, \"label\": 1}\n", "has no text 'text'"},
      {"{\"text\": 1, \"label\": 1}\n", "the text 'text' is not a string but of type number"},
      {"{\"text\": \"good\", \"label\": 0.5}\n",
       "the label 'label' is not a string, an integer or a boolean but of type number"},
      {"{\"text\": \"good\", \"label\": \"\"}\n", "the label is empty"}};
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

// The tokens of all samples in an epoch.
std::vector<std::vector<int32_t>> epoch_of(const Dataset& dataset, int64_t epoch,
                                           int64_t draw = -1) {
  std::vector<std::vector<int32_t>> all;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    std::vector<int32_t> input(static_cast<size_t>(dataset.spec().input.shape[0]));
    int32_t label = 0;
    dataset.read({.index = i, .epoch = epoch, .draw = draw},
                 reinterpret_cast<std::byte*>(input.data()), reinterpret_cast<std::byte*>(&label));
    all.push_back(std::move(input));
  }
  return all;
}

TEST_F(LabeledTextTest, TokensAreDroppedAtRandom) {
  std::string rows = "text,label\n";
  for (int i = 0; i < 200; ++i) rows += i % 2 == 0 ? "good film good,pos\n" : "bad,neg\n";
  folder.write("a.csv", rows);
  const std::string files = "train: 'a.csv' token_dropout { probability: 0.4 }";
  const auto dataset = open_dataset(config(files, "holdout: 0.1"), Part::kTraining, {.seed = 3});
  const auto first = epoch_of(*dataset, 0);
  EXPECT_EQ(epoch_of(*dataset, 0), first);
  EXPECT_NE(epoch_of(*dataset, 1), first);
  EXPECT_NE(epoch_of(*dataset, 0, 4), first);  // another occurrence in the same epoch
  EXPECT_NE(epoch_of(*open_dataset(config(files, "holdout: 0.1"), Part::kTraining, {.seed = 4}), 0),
            first);
  int64_t tokens = 0, kept = 0;
  const std::vector<int32_t> labels = dataset->labels();
  for (size_t i = 0; i < first.size(); ++i) {
    const std::vector<int32_t>& sample = first[i];
    ASSERT_EQ(sample[0], kCls);
    const auto end = std::ranges::find(sample, kSep);
    ASSERT_NE(end, sample.end());
    EXPECT_TRUE(std::all_of(end + 1, sample.end(), [](int32_t token) { return token == kPad; }));
    const int64_t length = end - sample.begin() - 1;
    if (labels[i] == 0) {
      EXPECT_EQ(length, 1);  // no text loses all tokens
    } else {
      ASSERT_GE(length, 1);
      tokens += 3;
      kept += length;
    }
  }
  // With all tokens kept where all would be dropped: 3 * 0.6 + 3 * 0.4 ^ 3 of 3.
  EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(tokens), 0.664, 0.08);
  EXPECT_SAYS(dataset->description(), ", token dropout 0.4");

  const auto evaluation = open_dataset(config(files, "holdout: 0.1"), Part::kEvaluation);
  for (const auto& sample : epoch_of(*evaluation, 0)) {
    EXPECT_TRUE(sample == std::vector<int32_t>({kCls, kGood, kFilm, kGood, kSep}) ||
                sample == std::vector<int32_t>({kCls, kBad, kSep, kPad, kPad}));
  }
}

TEST_F(LabeledTextTest, DroppedTokensCanBeReplaced) {
  std::string rows = "text,label\nbad,neg\n";
  for (int i = 0; i < 50; ++i) rows += "good film good,pos\n";
  folder.write("a.csv", rows);
  const auto dataset = open("train: 'a.csv' token_dropout { probability: 0.5 token: 1 }");
  int64_t replaced = 0;
  const auto samples = epoch_of(*dataset, 0);
  for (size_t i = 1; i < samples.size(); ++i) {
    const std::vector<int32_t>& sample = samples[i];
    EXPECT_EQ(sample[0], kCls);
    EXPECT_EQ(sample[4], kSep);
    replaced += std::ranges::count(sample, kUnk);
    for (int t = 1; t < 4; ++t)
      EXPECT_TRUE(sample[t] == kUnk || sample[t] == (t == 2 ? kFilm : kGood));
  }
  EXPECT_NEAR(static_cast<double>(replaced) / 150, 0.5, 0.15);
}

TEST_F(LabeledTextTest, WordsAreReplacedBySynonyms) {
  folder.write("vocab.txt",
               "[PAD]\n[UNK]\n[CLS]\n[SEP]\ngood\nbad\nfilm\nfine\nmovie\nnot\nwell\nmade\n");
  std::string rows = "text,label\nbad,neg\n";
  for (int i = 0; i < 100; ++i) rows += "\"Good, good film\",pos\n";
  folder.write("a.csv", rows);
  folder.write("synonyms.txt", "# comment\n\ngood, fine, well made\nfilm,movie\n");
  const auto config = folder.config(
      "labeled_text { train: 'a.csv' tokenizer { wordpiece {} } length: 12"
      "  synonyms { file: 'synonyms.txt' probability: 0.5 } }");
  const auto dataset = open_dataset(config, Part::kTraining, {.seed = 1});
  EXPECT_FALSE(dataset->in_memory());
  EXPECT_SAYS(dataset->description(), ", synonyms of 4 words with probability 0.5");
  const auto first = epoch_of(*dataset, 0);
  EXPECT_EQ(epoch_of(*dataset, 0), first);
  EXPECT_NE(epoch_of(*dataset, 1), first);
  std::map<std::string, int> found;
  for (size_t i = 1; i < first.size(); ++i) {
    const auto end = std::ranges::find(first[i], kPad);
    ++found[dataset->tokenizer()->decode({first[i].begin(), end})];
  }
  EXPECT_GE(found.size(), 10u);  // of 3 * 3 * 2
  EXPECT_GT(found["[CLS] good [UNK] good film [SEP]"], 3);
  EXPECT_GT(found["[CLS] fine [UNK] good movie [SEP]"], 0);
  int two_words = 0;
  for (const auto& [text, count] : found)
    two_words += text.find("well made") != text.npos ? count : 0;
  EXPECT_GT(two_words, 20);
  EXPECT_EQ(first[0], epoch_of(*dataset, 5)[0]);  // has no synonyms
}

// The tokens that synonyms add do not make a text need a longer batch.
TEST_F(LabeledTextTest, SynonymsStayInTheBucketOfTheText) {
  folder.write("a.csv", "text,label\ngood good good good good good,pos\nbad,neg\n");
  folder.write("synonyms.txt", "good,film film film film\n");
  const auto dataset = open_dataset(
      folder.config("labeled_text { train: 'a.csv' tokenizer { wordpiece {} } length: 30"
                    "  synonyms { file: 'synonyms.txt' probability: 1 } }"),
      Part::kTraining);
  EXPECT_THAT(dataset->lengths(), ElementsAre(8, 3));
  EXPECT_THAT(epoch_of(*dataset, 0)[0],
              ::testing::Contains(kPad).Times(22));  // 8 tokens, cut off
  EXPECT_EQ(epoch_of(*dataset, 0)[0][7], kSep);
}

// The time was cubic in the words of a line, and quadratic in the lines of a word.
TEST_F(LabeledTextTest, ManySynonymsTakeLittleTimeAndMemory) {
  const auto word = [](int number) {
    std::string text = "w";
    for (int i = 0; i < 4; ++i, number /= 26) text += static_cast<char>('a' + number % 26);
    return text;
  };
  std::string line = "good", lines;
  for (int i = 0; i < 1000; ++i) line += "," + word(i);
  for (int i = 0; i < 50000; ++i) lines += "good," + word(i) + "\n";
  folder.write("a.csv", "text,label\ngood,pos\nbad,neg\n");
  folder.write("s.txt", line + "\n" + lines + lines);
  const DataConfig synonyms = config("train: 'a.csv' synonyms { file: 's.txt' probability: 0.5 }");
  EXPECT_SAYS(open_dataset(synonyms, Part::kTraining)->description(), ", synonyms of 50001 words");

  for (int i = 1000; i < 5000; ++i) line += "," + word(i);
  folder.write("s.txt", line + "\n");
  EXPECT_SAYS(data_error(synonyms),
              "s.txt: line 1: has 5001 words, each a synonym of all others; up to this line the "
              "synonyms take more than 256.0 MiB");
}

TEST_F(LabeledTextTest, InvalidAugmentationIsNamed) {
  folder.write("a.csv", "text,label\ngood,pos\nbad,neg\n");
  const auto dropout = [&](const std::string& fields) {
    return config_error(config("train: 'a.csv' token_dropout { " + fields + " }"));
  };
  EXPECT_SAYS(dropout("probability: 1"),
              "data.labeled_text.token_dropout.probability: 1 is not in [0, 1)");
  EXPECT_SAYS(dropout("token: 7"),
              "data.labeled_text.token_dropout.token: 7 is not in the vocabulary, [0, 7)");
  const auto with_synonyms = [&](const std::string& fields) {
    return config("train: 'a.csv' synonyms { " + fields + " }");
  };
  EXPECT_SAYS(config_error(with_synonyms("")), "data.labeled_text.synonyms.file: is missing");
  EXPECT_SAYS(config_error(with_synonyms("file: 's.txt' probability: 1.5")),
              "data.labeled_text.synonyms.probability: 1.5 is not in [0, 1]");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"good, fine\nbad\n", "s.txt: line 2: has only the word 'bad'; synonyms are separated by"},
      {"good, fine,\n", "s.txt: line 1: has an empty word"},
      {"good, fi\xff\n", "s.txt: line 1: is not UTF-8 at byte 8"},
      {"# nothing\n", "s.txt: has no synonyms"}};
  for (const auto& [text, problem] : cases) {
    folder.write("s.txt", text);
    EXPECT_SAYS(data_error(with_synonyms("file: 's.txt'")), problem);
  }
  EXPECT_SAYS(data_error(with_synonyms("file: 'none.txt'")), "none.txt");
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
  folder.write("b.csv", "text,label\nfilm,other\n");  // texts of one class
  const auto one = with_training_classes(open_dataset(other, Part::kEvaluation), training->spec(),
                                         training->class_names());
  EXPECT_THAT(one->labels(), ElementsAre(1));
  folder.write("other/b.csv", "text,label\nbad,neg\n");  // a folder with files like the run's
  const DataConfig run = config("train: 'a.csv' eval: 'b.csv'");
  EXPECT_EQ(config_for_path(run, training->spec(), folder.path("other")).labeled_text().eval(),
            folder.path("other/b.csv"));
  const DataConfig absolute = config("train: 'a.csv' eval: '" + folder.path("b.csv") + "'");
  EXPECT_EQ(config_for_path(absolute, training->spec(), folder.path("other")).labeled_text().eval(),
            folder.path("other"));
}

TEST_F(LabeledTextTest, OtherTextsForEvaluationMayBeCompressed) {
  folder.write("a.csv", "text,label\ngood,pos\nbad,neg\n");
  folder.write("other/b.csv.gz", gzip("text,label\nbad,neg\n"));
  const DataConfig run = config("train: 'a.csv' eval: 'b.csv'");
  const SampleSpec spec = open("train: 'a.csv'")->spec();
  for (const char* path : {"other", "other/b.csv", "other/b.csv.gz"}) {
    EXPECT_EQ(
        open_dataset(config_for_path(run, spec, folder.path(path)), Part::kEvaluation)->size(), 1)
        << path;
  }
  EXPECT_SAYS(message<ConfigError>([&] { config_for_path(run, spec, folder.path("other/c.csv")); }),
              "c.csv does not exist");
}

// Texts may contain token 0, which is "!" in GPT-2's vocabulary.
TEST_F(LabeledTextTest, WithoutATokenForItPaddingIsTheEndOfText) {
  folder.write("vocab.txt", "good\n[UNK]\nbad\n[SEP]\n");
  folder.write("a.csv", "text,label\nbad good,pos\nbad,neg\n");
  EXPECT_THAT(input(*open("train: 'a.csv'"), 0), ElementsAre(2, 0, 3, 3, 3));
  const SpecialTokens enclosing{.begin = 1, .end = 2};
  EXPECT_EQ(enclosing.padding(), 0);
}

}  // namespace
}  // namespace trireme::data
