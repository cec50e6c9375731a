#include <gmock/gmock.h>

#include <numeric>
#include <set>
#include <span>

#include "core/device.h"
#include "data/loader.h"
#include "tests/data/files.h"

namespace trireme::data {
namespace {

using testing::config_error;
using testing::data_error;
using ::testing::ElementsAre;
using testing::Folder;
using testing::sample;
using testing::values;

template <class T>
std::string numbers(size_t count, T from = 0) {
  std::vector<T> tokens(count);
  std::iota(tokens.begin(), tokens.end(), from);
  return {reinterpret_cast<const char*>(tokens.data()), count * sizeof(T)};
}

std::string header(int32_t magic, int32_t version, int32_t tokens) {
  std::vector<int32_t> words(256);
  words[0] = magic, words[1] = version, words[2] = tokens;
  return {reinterpret_cast<const char*>(words.data()), 1024};
}

class TokensTest : public ::testing::Test {
 protected:
  std::unique_ptr<Dataset> open(const std::string& tokens, const std::string& more = "") const {
    return open_dataset(config(tokens, more), Part::kTraining);
  }
  DataConfig config(const std::string& tokens, const std::string& more = "") const {
    return folder.config("tokens { train: '*.bin' " + tokens + "} " + more);
  }
  void expect_sample(const Dataset& dataset, int64_t index, int32_t first) const {
    const auto length = static_cast<size_t>(dataset.spec().input.shape[0]);
    std::vector<int32_t> expected(length);
    std::iota(expected.begin(), expected.end(), first);
    EXPECT_EQ(values<int32_t>(sample(dataset, index).input), expected);
    for (int32_t& token : expected) ++token;
    EXPECT_EQ(values<int32_t>(sample(dataset, index).target), expected);
  }
  Folder folder;
};

TEST_F(TokensTest, TargetsAreShiftedByOneToken) {
  folder.write("a.bin", numbers<uint16_t>(23));
  const auto dataset = open("length: 5");
  ASSERT_EQ(dataset->size(), 4);  // 4 x 5, and one more for the last target
  EXPECT_EQ(dataset->spec().input, (TensorSpec{DType::kI32, Shape{5}, {}}));
  EXPECT_EQ(dataset->spec().target, (TensorSpec{DType::kI32, Shape{5}, {}}));
  EXPECT_EQ(dataset->spec().classes, 23);
  for (int32_t i = 0; i < 4; ++i) expect_sample(*dataset, i, 5 * i);
  EXPECT_EQ(dataset->where(2), folder.path("a.bin") + ": token 10");
  EXPECT_SAYS(
      dataset->description(),
      "a.bin: 4 samples of 5 tokens with vocab_size 23, 2 tokens at the ends of files unused");
}

TEST_F(TokensTest, SamplesDoNotSpanFiles) {
  folder.write("a.bin", numbers<uint16_t>(12));
  folder.write("b.bin", numbers<uint16_t>(3, 50));  // less than a sample
  folder.write("c.bin", numbers<uint16_t>(11, 100));
  const auto dataset = open("length: 5");
  ASSERT_EQ(dataset->size(), 4);
  expect_sample(*dataset, 1, 5);
  expect_sample(*dataset, 2, 100);
  expect_sample(*dataset, 3, 105);
  EXPECT_EQ(dataset->where(2), folder.path("c.bin") + ": token 0");
  EXPECT_SAYS(dataset->description(), "a.bin and 2 more");
  EXPECT_SAYS(dataset->description(), ", 4 tokens at the ends of files unused");
}

// Rows keep their rank in the short last batch, too; a sample does not continue that of another
// file.
TEST_F(TokensTest, StreamsContinueInTheSameRow) {
  folder.write("a.bin", numbers<uint16_t>(6 * 4 + 1));
  folder.write("b.bin", numbers<uint16_t>(5 * 4 + 1, 50));
  const auto dataset = open("length: 4");
  const auto device = create_cpu_device(1);
  for (const int ranks : {1, 2, 3}) {
    std::vector<std::vector<std::pair<int64_t, bool>>> rows(3);
    for (int rank = 0; rank < ranks; ++rank) {
      LoaderOptions options;
      options.order.shuffle = false;
      options.order.streams = 3;
      options.global_batch = options.capacity = 3;
      options.rank = rank;
      options.ranks = ranks;
      Loader loader(*dataset, *device, options);
      loader.start(0, 0);
      for (int i = 0; i < 4; ++i) {
        const Batch& batch = loader.next();
        EXPECT_EQ(batch.first_row, share_of(3, rank, ranks).begin);
        for (int64_t row = 0; row < batch.rows; ++row) {
          rows[static_cast<size_t>(batch.first_row + row)].emplace_back(batch.samples[row],
                                                                        batch.continues[row]);
        }
      }
    }
    using Row = std::vector<std::pair<int64_t, bool>>;
    EXPECT_EQ(rows[0], (Row{{0, false}, {1, true}, {2, true}, {3, true}}));
    EXPECT_EQ(rows[1], (Row{{4, false}, {5, true}, {6, false}, {7, true}}));
    EXPECT_EQ(rows[2], (Row{{8, false}, {9, true}, {10, true}}));
  }
}

TEST_F(TokensTest, ReadsHeadersOfLlmC) {
  folder.write("a.bin", header(20240520, 1, 11) + numbers<uint16_t>(11, 7));
  folder.write("b.bin", header(20240801, 7, 11) + numbers<uint32_t>(11, 100000));
  const auto dataset = open("length: 5");
  ASSERT_EQ(dataset->size(), 4);
  expect_sample(*dataset, 0, 7);
  expect_sample(*dataset, 3, 100005);
  EXPECT_EQ(dataset->spec().classes, 100011);
}

TEST_F(TokensTest, KindSetsTheWidthOfTokens) {
  folder.write("a.bin", numbers<uint32_t>(6, 70000));
  expect_sample(*open("length: 5 kind: UINT32"), 0, 70000);
  EXPECT_EQ(open("length: 5 kind: UINT16")->spec().classes, 4470);
}

TEST_F(TokensTest, EvaluationFilesAndHoldout) {
  folder.write("a.bin", numbers<uint16_t>(51));
  folder.write("val", numbers<uint16_t>(11, 30));
  const auto evaluation = open_dataset(config("length: 5 eval: 'val'"), Part::kEvaluation);
  EXPECT_EQ(evaluation->size(), 2);
  EXPECT_EQ(evaluation->spec().classes, 51);
  EXPECT_EQ(open("length: 5", "holdout: 0.2")->size(), 8);
  EXPECT_EQ(open_dataset(config("length: 5", "holdout: 0.2"), Part::kEvaluation)->size(), 2);
  EXPECT_SAYS(config_error(config("length: 5"), Part::kEvaluation), "data.tokens.eval: is missing");
  EXPECT_SAYS(config_error(config("eval: 'val'", "holdout: 0.2")), "data.tokens.eval: cannot be");
}

TEST_F(TokensTest, EvaluationCoversEveryTargetOnce) {
  folder.write("a.bin", numbers<uint16_t>(51));
  folder.write("val", numbers<uint16_t>(9, 30));
  const auto evaluation = open_dataset(config("length: 5 eval: 'val'"), Part::kEvaluation);
  ASSERT_EQ(evaluation->size(), 2);
  const auto last = sample(*evaluation, 1);
  EXPECT_THAT(values<int32_t>(last.input), ElementsAre(35, 36, 37, 0, 0));
  EXPECT_THAT(values<int32_t>(last.target), ElementsAre(36, 37, 38, -100, -100));
}

TEST_F(TokensTest, RandomOffsets) {
  folder.write("a.bin", numbers<uint16_t>(100));
  const auto dataset = open("length: 10 random_offset: true");
  ASSERT_EQ(dataset->size(), 8);  // one less, so that any offset fits
  std::set<int32_t> offsets;
  for (int64_t epoch = 0; epoch < 50; ++epoch) {
    std::vector<int32_t> input(10), target(10);
    const auto bytes = [](std::vector<int32_t>& tokens) {
      return std::as_writable_bytes(std::span(tokens)).data();
    };
    dataset->read({.index = 0, .epoch = epoch}, bytes(input), bytes(target));
    const int32_t offset = input[0];
    offsets.insert(offset);
    dataset->read({.index = 7, .epoch = epoch}, bytes(input), bytes(target));
    EXPECT_EQ(input[0], offset + 70);
    EXPECT_EQ(target[9], offset + 80);
  }
  EXPECT_EQ(offsets.size(), 10u);
  EXPECT_EQ(*offsets.rbegin(), 9);
  // A file with one window is used, too.
  folder.write("a.bin", numbers<uint16_t>(13));
  EXPECT_EQ(open("length: 10 random_offset: true")->size(), 1);
  EXPECT_SAYS(config_error(config("length: 5 random_offset: true", "holdout: 0.2")),
              "data.tokens.random_offset: cannot be combined with data.holdout");
}

TEST_F(TokensTest, TokensOutsideOfTheVocabulary) {
  folder.write("a.bin", numbers<uint16_t>(21));
  const auto dataset = open("length: 5 vocab_size: 18");
  EXPECT_EQ(dataset->spec().classes, 18);
  expect_sample(*dataset, 2, 10);
  EXPECT_SAYS(testing::message<DataError>([&] { sample(*dataset, 3); }),
              folder.path("a.bin") + ": token 18: 18 is not in the vocabulary, [0, 18)");
  // The last target is checked as well.
  folder.write("a.bin", numbers<uint16_t>(6));
  EXPECT_SAYS(testing::message<DataError>([&] { sample(*open("length: 5 vocab_size: 5"), 0); }),
              "token 5: 5 is not in");
  folder.write("val", numbers<uint16_t>(6, 1));
  const auto evaluation = open_dataset(config("length: 5 eval: 'val'"), Part::kEvaluation);
  EXPECT_SAYS(testing::message<DataError>([&] { sample(*evaluation, 0); }),
              folder.path("val") + ": token 5: 6 is not in the vocabulary, [0, 6)");
}

TEST_F(TokensTest, Truncated) {
  folder.write("a.bin", header(20240520, 1, 21) + numbers<uint16_t>(12));
  EXPECT_SAYS(data_error(config("length: 5")),
              folder.path("a.bin") + ": token 12: is truncated: the header declares 21 tokens");
  const auto dataset = open("length: 5", "on_bad_record: SKIP");
  EXPECT_EQ(dataset->size(), 2);
  EXPECT_EQ(dataset->bad_records().count, 2);
  EXPECT_SAYS(dataset->description(), ", 2 bad record(s) skipped");
  folder.write("a.bin", header(20240520, 1, 21));
  EXPECT_SAYS(data_error(config("length: 5", "on_bad_record: SKIP")),
              "has no good records, only 4 bad ones");
  folder.write("a.bin", numbers<uint16_t>(12) + "x");
  EXPECT_SAYS(data_error(config("length: 5")), "ends within a token of 2 bytes");
  EXPECT_EQ(open("length: 5", "on_bad_record: SKIP")->bad_records().count, 1);
}

TEST_F(TokensTest, DamagedHeaders) {
  folder.write("a.bin", header(20240520, 3, 9) + numbers<uint16_t>(9));
  EXPECT_SAYS(data_error(config("length: 5")), "has llm.c header version 3; only 1 is supported");
  folder.write("a.bin", header(20240520, 1, 9).substr(0, 600));
  EXPECT_SAYS(data_error(config("length: 5")), "is 600 bytes long; the llm.c header alone has");
  folder.write("a.bin", header(20240520, 1, -4));
  EXPECT_SAYS(data_error(config("length: 5")), "which declares -4 tokens");
  folder.write("a.bin", header(20240520, 1, 9) + numbers<uint16_t>(11));
  EXPECT_SAYS(data_error(config("length: 5")), "has 4 bytes after its 9 tokens");
}

TEST_F(TokensTest, OtherFormatsAreNotTokens) {
  const std::string tokens = numbers<uint16_t>(40);
  folder.write("a.bin", "\x93NUMPY\x01" + tokens);
  EXPECT_SAYS(data_error(config("length: 5")), "a.bin: is a NumPy file; save the tokens alone");
  folder.write("a.bin", "\x1f\x8b\x08" + tokens);
  EXPECT_SAYS(data_error(config("length: 5 kind: UINT16")), "a.bin: is compressed by gzip");
}

TEST_F(TokensTest, WiderIntegersAreNotReadAsTwoTokens) {
  const auto expect_refusal = [&](const std::string& tokens, const std::string& problem) {
    EXPECT_SAYS(data_error(config("length: 5 " + tokens)),
                "a.bin: looks like integers of " + problem);
  };
  folder.write("a.bin", numbers<uint32_t>(200, 500));
  expect_refusal("", "more than 2 bytes");
  EXPECT_EQ(open("length: 5 kind: UINT32")->spec().classes, 700);
  EXPECT_EQ(open("length: 5 kind: UINT16")->size(), 79);
  folder.write("a.bin", numbers<uint32_t>(200, 2 * 65536 - 100));
  expect_refusal("", "more than 2 bytes");
  folder.write("a.bin", numbers<int64_t>(200, 500));
  expect_refusal("", "more than 2 bytes");
  expect_refusal("kind: UINT32", "8 bytes");
  // Such as text with only four characters.
  std::string few;
  for (int i = 0; i < 200; ++i) few += {static_cast<char>(i % 4), 0};
  folder.write("a.bin", few);
  EXPECT_EQ(open("length: 5")->size(), 39);
}

TEST_F(TokensTest, TooFewOrTooLarge) {
  folder.write("a.bin", numbers<uint16_t>(5));
  EXPECT_SAYS(data_error(config("length: 5")), "has 5 tokens, but a sample needs 5");
  folder.write("a.bin", "");
  EXPECT_SAYS(data_error(config("length: 5")), "has 0 tokens");
  folder.write("a.bin", numbers<uint32_t>(9, 1U << 31));
  EXPECT_SAYS(data_error(config("length: 5 kind: UINT32")),
              "contains token 2147483656, but a vocabulary");
}

TEST_F(TokensTest, BadConfiguration) {
  folder.write("a.bin", numbers<uint16_t>(50));
  EXPECT_SAYS(config_error(config("length: 0")), "data.tokens.length: 0 is not in [1, ");
  EXPECT_SAYS(config_error(config("length: 5 vocab_size: 1")),
              "data.tokens.vocab_size: 1 is not in [2, ");
  EXPECT_SAYS(config_error(config("length: 5", "normalize { mean: 1 }")),
              "data.normalize: cannot be used with tokens");
  EXPECT_SAYS(config_error(folder.config("tokens {}")), "data.tokens.train");
}

}  // namespace
}  // namespace trireme::data
