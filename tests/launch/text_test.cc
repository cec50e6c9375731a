// End-to-end test of text classification: BERT is trained on a table with bad records, resumes,
// is evaluated and labels other texts.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/launch/program.h"

namespace trireme::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
namespace fs = std::filesystem;

// 3 to 16 words, of which one tells the label.
std::string text_of(int row) {
  std::string text;
  for (int w = 0; w < (row % 3 == 0 ? 14 : 3) + row % 2; ++w) {
    text += fmt::format("word{} ", (row * 5 + w * w) % 17);
  }
  return text + (row % 2 == 0 ? "good" : "bad");
}

class TextTest : public ::testing::Test {
 protected:
  TextTest() {
    std::string vocab = "[PAD]\n[UNK]\n[CLS]\n[SEP]\ngood\nbad\nfine\n";
    for (int i = 0; i < 17; ++i) vocab += fmt::format("word{}\n", i);
    scratch_.write("vocab.txt", vocab);
    scratch_.write("synonyms.txt", "good, fine\n");
    std::string train = "text,label\n", eval = train;
    for (int row = 0; row < 160; ++row) {
      (row < 128 ? train : eval) +=
          fmt::format("{},{}\n", text_of(row), row % 2 == 0 ? "pos" : "neg");
    }
    scratch_.write("train.csv", train + "\n \t,pos\ng\xff,neg\ngood,\n");
    scratch_.write("eval.csv", eval + "good,unseen\n");
    config_ = scratch_.write("run.txtpb", fmt::format(R"(
      model {{ zoo {{ name: "bert-mini" blocks: 1 width: 16 heads: 2 padding_token: 0
                      segment_end: 3 pooling: MEAN }} }}
      data {{
        root: "{}"
        labeled_text {{ train: "train.csv" eval: "eval.csv" length: 32 tokenizer {{ wordpiece {{}} }}
                        token_dropout {{}} synonyms {{ file: "synonyms.txt" }} }}
        length_buckets {{ count: 2 block: 16 }}
        on_bad_record: SKIP
      }}
      batch {{ global: 16 }} train {{ epochs: 8 device: "cpu" }}
      optimizer {{ adamw {{}} }} schedule {{ learning_rate: 0.02 cosine {{}} }}
    )",
                                                      scratch_.path().string()));
  }
  std::string path(const std::string& name) const { return (scratch_ / name).string(); }

  Scratch scratch_;
  std::string config_;
};

TEST_F(TextTest, BertIsTrainedResumedEvaluatedAndUsed) {
  const Outcome begun = run({"train", config_, "--run-dir", path("run"), "--set",
                             "train.max_steps=11", "--set", "checkpoint.every_steps=11"},
                            2);
  ASSERT_EQ(begun.code, 0) << begun.error;
  EXPECT_THAT(begun.out, HasSubstr("batches: 8, 24 or 32 tokens, of which "));
  EXPECT_THAT(begun.out, HasSubstr("synonyms of 2 words with probability 0.1, token dropout 0.1"));
  EXPECT_THAT(begun.out, HasSubstr("5 bad records skipped"));  // of both files
  EXPECT_THAT(begun.error + begun.out, HasSubstr("eval.csv: line 34: label 'unseen'"));
  const Outcome resumed = run({"train", config_, "--run-dir", path("run")});
  ASSERT_EQ(resumed.code, 0) << resumed.error;
  EXPECT_THAT(resumed.out, HasSubstr("(step 11, 48 samples into epoch 2)"));

  const Outcome whole = run({"train", config_, "--run-dir", path("whole")}, 2);
  ASSERT_EQ(whole.code, 0) << whole.error;
  const auto losses = losses_of(path("run")), expected = losses_of(path("whole"));
  ASSERT_EQ(losses.size(), 64u);
  ASSERT_EQ(expected.size(), 64u);
  for (size_t i = 0; i < losses.size(); ++i) {
    const double loss = std::stod(expected[i]);
    EXPECT_NEAR(std::stod(losses[i]), loss, 1e-4 * std::max(loss, 0.01)) << "step " << i + 1;
  }

  const Outcome evaluated = run({"eval", path("run"), "--json"}, 2);
  ASSERT_EQ(evaluated.code, 0) << evaluated.error;
  const Json result = Json::parse(evaluated.out);
  EXPECT_EQ(result["samples"], 32);
  EXPECT_GT(result["eval_accuracy"].get<double>(), 0.95);
}

TEST_F(TextTest, PredictsTextsAndNamesBadOnes) {
  ASSERT_EQ(run({"train", config_, "--run-dir", path("run")}, 2).code, 0);
  const Outcome files_gone = run({"predict", path("run"), "--format", "jsonl",
                                  scratch_.write("letter.txt", "word1 word2 good\n")});
  ASSERT_EQ(files_gone.code, 0) << files_gone.error;
  EXPECT_EQ(Json::parse(files_gone.out)["top"][0]["name"], "pos");
  const Outcome predicted =
      run({"predict", path("run"), "--format", "jsonl",
           scratch_.write("new.csv", "text\nword3 bad\n\nword4 \xff\nword5 word6 fine\n")});
  EXPECT_EQ(predicted.code, 3);  // some texts could not be read
  std::istringstream lines(predicted.out);
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line);) {
    names.push_back(Json::parse(line)["top"][0]["name"]);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("neg", "pos"));
  EXPECT_THAT(predicted.error, HasSubstr("new.csv: line 3: is empty"));
  EXPECT_THAT(predicted.error, HasSubstr("new.csv: line 4: the text is not UTF-8 at byte 6"));

  const Outcome exported =
      run({"export", path("run"), path("x.safetensors"), "--names", "huggingface"});
  EXPECT_EQ(exported.code, 2);
  EXPECT_THAT(exported.error, HasSubstr("this network has model.zoo.pooling: MEAN"));

  const Outcome unseen = run({"eval", path("run"), "--data",
                              scratch_.write("other.csv", "text,label\ngood,pos\nbad,negative\n")});
  EXPECT_EQ(unseen.code, 3);
  EXPECT_THAT(unseen.error, HasSubstr("class 'negative' is not one the network was trained on"));
  scratch_.write("one.csv", "text,label\nword1 good,pos\n");
  EXPECT_EQ(run({"eval", path("run"), "--data", path("one.csv")}).code, 0);

  std::string vocab = read_file(path("run/tokenizer/vocab.txt"));
  std::swap(vocab[vocab.find("good")], vocab[vocab.find("bad")]);
  scratch_.write("run/tokenizer/vocab.txt", vocab);
  const Outcome other = run({"predict", path("run"), path("letter.txt")});
  EXPECT_EQ(other.code, 3);
  EXPECT_THAT(other.error, HasSubstr("is not the tokenizer that the run was trained with"));
}

TEST_F(TextTest, DataCommandsShowLengthsAndTexts) {
  const Outcome stats = run({"data", "stats", config_});
  EXPECT_EQ(stats.code, 0) << stats.error;
  EXPECT_THAT(stats.out, HasSubstr("tokens   6 to 18, median 7\n"));
  EXPECT_THAT(stats.out, HasSubstr("batches  8, 24 or 32 tokens, of which "));
  EXPECT_THAT(stats.out, HasSubstr("bad      4 records"));
  const Outcome json = run({"data", "stats", config_, "--json"});
  EXPECT_EQ(Json::parse(json.out)["tokens"]["max"], 18);
  const Outcome shown = run({"data", "show", config_, "--samples", "3"});
  EXPECT_EQ(shown.code, 0) << shown.error;
  EXPECT_THAT(shown.out, ::testing::ContainsRegex("--- sample 1: (pos|neg) ---\n.CLS. word"));
  EXPECT_THAT(shown.out, Not(HasSubstr("[PAD]")));
}

TEST_F(TextTest, ASkippedRecordTooManyEndsTheRun) {
  const Outcome refused =
      run({"train", config_, "--run-dir", path("run"), "--set", "data.max_bad_records=3"});
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.error, HasSubstr("train.csv"));
  EXPECT_THAT(refused.error, HasSubstr("4 bad records"));
}

}  // namespace
}  // namespace trireme::testing
