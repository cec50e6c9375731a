// data.on_bad_record: SKIP for each format: which records are skipped, retained and reported.
#include "data/bad_records.h"

#include <gmock/gmock.h>

#include "tests/data/files.h"

namespace trireme::data {
namespace {

using testing::config_error;
using testing::data_error;
using ::testing::ElementsAre;
using testing::Folder;
using testing::gzip;
using testing::idx;
using testing::pixels;
using testing::sample;
using testing::values;

constexpr const char* kImages = "train-images-idx3-ubyte";
constexpr const char* kLabels = "train-labels-idx1-ubyte";

std::vector<int32_t> labels_of(const Dataset& dataset) {
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < dataset.size(); ++i) labels.push_back(sample(dataset, i).label());
  return labels;
}

// Incompressible bytes, so that half of the gzip stream holds half of them.
std::string noise(size_t count) {
  std::string bytes(count, '\0');
  uint32_t state = 1;
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

class BadIdxTest : public ::testing::Test {
 protected:
  BadIdxTest() {
    folder.write(kImages, idx({5, 2, 3}, pixels(30)));
    folder.write(kLabels, idx({5}, std::string{3, 0, 9, 1, 7}));
  }
  std::unique_ptr<Dataset> open() { return open_dataset(config, Part::kTraining); }
  // Image `row` of the files is sample `index`.
  void expect_image(const Dataset& dataset, int64_t index, size_t row) {
    EXPECT_EQ(values<char>(sample(dataset, index).input), values<char>([&] {
                const std::string expected = pixels(6, row * 6);
                std::vector<std::byte> bytes(6);
                std::memcpy(bytes.data(), expected.data(), 6);
                return bytes;
              }()));
  }
  Folder folder;
  DataConfig config = folder.config("idx {} on_bad_record: SKIP");
};

TEST_F(BadIdxTest, SkipsNothingIfAllRecordsAreGood) {
  const auto dataset = open();
  EXPECT_EQ(dataset->size(), 5);
  EXPECT_EQ(dataset->bad_records().count, 0);
  EXPECT_TRUE(dataset->bad_records().first.empty());
}

TEST_F(BadIdxTest, SkipsLabelsOutOfRange) {
  folder.write(kLabels, idx({5}, std::string{3, 10, 9, 1, 99}));
  const auto dataset = open();
  EXPECT_THAT(labels_of(*dataset), ElementsAre(3, 9, 1));
  expect_image(*dataset, 0, 0);
  expect_image(*dataset, 1, 2);
  expect_image(*dataset, 2, 3);
  EXPECT_EQ(dataset->bad_records().count, 2);
  ASSERT_EQ(dataset->bad_records().first.size(), 2u);
  EXPECT_SAYS(dataset->bad_records().first[0],
              folder.path(kLabels) + ": record 1: label 10 is not in [0, 10)");
  EXPECT_SAYS(dataset->description(), "3 samples of u8 [1, 2, 3] in 10 classes, 2 bad record(s)");
}

TEST_F(BadIdxTest, TruncatedImages) {
  folder.write(kImages, idx({5, 2, 3}, pixels(20)));
  const auto dataset = open();
  EXPECT_THAT(labels_of(*dataset), ElementsAre(3, 0, 9));
  EXPECT_EQ(dataset->bad_records().count, 2);
  EXPECT_SAYS(
      dataset->bad_records().first[0],
      folder.path(kImages) + ": record 3: is truncated: the header declares [5, 2, 3] elements");
}

// Which record is missing is unknown: skipping the last ones could shift the labels of all others.
TEST_F(BadIdxTest, FilesOfDifferentLengthsAreNotSkipped) {
  folder.write(kLabels, idx({3}, std::string{3, 0, 9}));
  EXPECT_SAYS(data_error(config), "has 3 labels, but " + folder.path(kImages) + " has 5 images");
}

TEST_F(BadIdxTest, BothTruncatedAtDifferentRecords) {
  folder.write(kImages, idx({5, 2, 3}, pixels(25)));
  folder.write(kLabels, idx({5}, std::string{3, 0}));
  const auto dataset = open();
  EXPECT_THAT(labels_of(*dataset), ElementsAre(3, 0));
  EXPECT_EQ(dataset->bad_records().count, 3);
  EXPECT_SAYS(dataset->bad_records().first[0], folder.path(kLabels) + ": record 2: is truncated");
}

TEST_F(BadIdxTest, AHeaderThatExceedsMemoryOnlyCountsAsBadRecords) {
  folder.write(kImages, idx({0xffffffff, 2, 3}, pixels(30)));
  folder.write(kLabels, idx({0xffffffff}, std::string{3, 0, 9, 1, 7}));
  config.set_max_bad_records(int64_t{1} << 40);
  EXPECT_EQ(open()->size(), 5);
  EXPECT_EQ(open()->bad_records().count, 0xffffffffLL - 5);
  folder.write(kImages, idx({0xffffffff, 0xffffffff, 0xffffffff}, pixels(30)));
  EXPECT_SAYS(data_error(config), "has no good records, only 4294967295 bad ones; the first: " +
                                      folder.path(kImages) + ": record 0: is truncated");
}

TEST_F(BadIdxTest, FailsAboveTheLimit) {
  folder.write(kLabels, idx({5}, std::string{3, 10, 9, 11, 99}));
  config.set_max_bad_records(2);
  EXPECT_SAYS(data_error(config), "3 bad records, more than data.max_bad_records, 2; the first: " +
                                      folder.path(kLabels) +
                                      ": record 1: label 10 is not in [0, 10)");
  config.set_max_bad_records(3);
  EXPECT_EQ(open()->size(), 2);
}

TEST_F(BadIdxTest, DamagedGzipYieldsTheDataBeforeTheDamage) {
  std::filesystem::remove(folder.path(kImages));
  const std::string path = folder.path(kImages) + ".gz";
  const std::string zipped = gzip(idx({5, 40, 50}, noise(10000)));
  folder.write(std::string(kImages) + ".gz", zipped.substr(0, zipped.size() * 7 / 10));
  const auto cut = open();
  EXPECT_GE(cut->size(), 2);
  EXPECT_LE(cut->size(), 3);
  EXPECT_EQ(cut->bad_records().count, 5 - cut->size());
  EXPECT_SAYS(cut->bad_records().first[0], path + ": record " + std::to_string(cut->size()));
  EXPECT_SAYS(cut->bad_records().first[0], "gzip stream ends early");

  std::string wrong_sum = zipped;
  wrong_sum[wrong_sum.size() - 8] ^= 1;
  folder.write(std::string(kImages) + ".gz", wrong_sum);
  const auto complete = open();
  EXPECT_EQ(complete->size(), 5);
  EXPECT_EQ(complete->bad_records().count, 1) << "the damage is reported";
  EXPECT_SAYS(complete->bad_records().first[0], path + ": gzip data is damaged");
}

TEST_F(BadIdxTest, FilesOfAnotherFormatAreStillErrors) {
  folder.write(kImages, "\x89PNG and so on");
  EXPECT_SAYS(data_error(config), "begins with 89 50 4e 47");
  folder.write(kImages, idx({5, 2, 3}, pixels(31)));
  EXPECT_SAYS(data_error(config), "has data after its last record");
  std::filesystem::remove(folder.path(kImages));
  EXPECT_SAYS(data_error(config), "has no file");
}

TEST_F(BadIdxTest, HoldoutSplitsTheGoodRecords) {
  folder.write(kLabels, idx({5}, std::string{3, 10, 9, 1, 7}));
  config.set_holdout(0.5);
  const auto training = open_dataset(config, Part::kTraining);
  const auto evaluation = open_dataset(config, Part::kEvaluation);
  EXPECT_EQ(training->size() + evaluation->size(), 4);
  EXPECT_EQ(training->bad_records().count, 1);
  EXPECT_EQ(evaluation->bad_records().count, 1);
}

class BadCifarTest : public ::testing::Test {
 protected:
  static std::string record(char label, size_t from) {
    return std::string{label} + pixels(3072, from);
  }
  Folder folder;
  DataConfig config = folder.config(
      "cifar { train_file: 'a.bin' train_file: 'b.bin' } on_bad_record: SKIP max_bad_records: 3");
};

TEST_F(BadCifarTest, SkipsBadLabelsAndATruncatedLastRecord) {
  folder.write("a.bin", record(1, 0) + record(10, 1) + record(2, 2) + record(3, 3).substr(0, 99));
  folder.write("b.bin", record(4, 4));
  const auto dataset = open_dataset(config, Part::kTraining);
  EXPECT_THAT(labels_of(*dataset), ElementsAre(1, 2, 4));
  EXPECT_EQ(values<char>(sample(*dataset, 1).input)[0], pixels(1, 2)[0]);
  EXPECT_EQ(dataset->bad_records().count, 2);
  EXPECT_SAYS(dataset->bad_records().first[0], folder.path("a.bin") + ": record 3: is truncated");
  EXPECT_SAYS(dataset->bad_records().first[1],
              folder.path("a.bin") + ": record 1: label 10 is not in [0, 10)");
}

TEST_F(BadCifarTest, LimitCoversAllFiles) {
  folder.write("a.bin", record(1, 0) + record(10, 1) + record(11, 2));
  folder.write("b.bin", record(12, 4) + record(13, 4));
  EXPECT_SAYS(data_error(config), "4 bad records, more than data.max_bad_records, 3; the first: " +
                                      folder.path("a.bin") + ": record 1: label 10");
}

TEST_F(BadCifarTest, MissingAndEmptyFilesAreStillErrors) {
  folder.write("a.bin", record(1, 0));
  EXPECT_SAYS(data_error(config), "has no file b.bin");
  folder.write("b.bin", "");
  EXPECT_SAYS(data_error(config), folder.path("b.bin") + ": is empty");
}

TEST_F(BadCifarTest, DamagedGzip) {
  const std::string zipped = gzip(record(1, 0) + '\2' + noise(3072));
  folder.write("a.bin", zipped.substr(0, zipped.size() / 2));
  folder.write("b.bin", record(4, 4));
  const auto dataset = open_dataset(config, Part::kTraining);
  EXPECT_THAT(labels_of(*dataset), ElementsAre(1, 4));
  EXPECT_EQ(dataset->bad_records().count, 1);
  EXPECT_SAYS(dataset->bad_records().first[0], "gzip stream ends early");
}

class BadCsvTest : public ::testing::Test {
 protected:
  std::unique_ptr<Dataset> open(const std::string& text, const std::string& fields = "") {
    folder.write("x.csv", text);
    return open_dataset(config(fields), Part::kTraining);
  }
  std::string error(const std::string& text, const std::string& fields = "") {
    folder.write("x.csv", text);
    return data_error(config(fields));
  }
  DataConfig config(const std::string& fields) {
    return folder.config("csv { train_file: 'x.csv' " + fields +
                         "} on_bad_record: SKIP max_bad_records: 9");
  }
  Folder folder;
};

TEST_F(BadCsvTest, SkipsLinesThatDoNotParse) {
  const auto dataset =
      open("a,b,c\n1,2,0\n3,x,1\n4,5,1\n6,7\n8,,0\n\"9,1,0\n1e99,1,0\n10,11,1\n12,\"13\"z,0\n",
           "classes: 2 ");
  EXPECT_THAT(labels_of(*dataset), ElementsAre(0, 1, 1));
  EXPECT_THAT(values<float>(sample(*dataset, 2).input), ElementsAre(10, 11));
  const BadRecords bad = dataset->bad_records();
  EXPECT_EQ(bad.count, 6);
  ASSERT_EQ(bad.first.size(), 5u) << "only the first few are recorded";
  EXPECT_SAYS(bad.first[0], folder.path("x.csv") + ": line 3, column 2 ('b'): 'x' is not a number");
  EXPECT_SAYS(bad.first[1], "line 5: has 2 column(s); the lines before have 3");
  EXPECT_SAYS(bad.first[3], "line 7, column 1: has an opening quote but no closing quote");
}

TEST_F(BadCsvTest, SkipsInvalidLabels) {
  const auto dataset = open("1,2,0\n3,4,1\n5,6,2\n7,8,-1\n9,10,0.5\n", "classes: 2 ");
  EXPECT_THAT(labels_of(*dataset), ElementsAre(0, 1));
  EXPECT_EQ(dataset->bad_records().count, 3);
  EXPECT_SAYS(dataset->bad_records().first[0], "line 3, column 3: label 2 is not in [0, 2)");
}

TEST_F(BadCsvTest, AnOutlierLabelDoesNotAddClasses) {
  const auto dataset = open("1,2,0\n3,4,1\n5,6,2\n7,8,1000000\n");
  EXPECT_EQ(dataset->spec().classes, 3);
  EXPECT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->bad_records().count, 1);
}

TEST_F(BadCsvTest, CountsBadRecordsOfTheEvaluationFileSeparately) {
  folder.write("x.csv", "1,2,0\n3,x,1\n4,4,1\n");
  folder.write("y.csv", "1,2,0\n3,4\n5,6,7\n");
  const auto dataset = open_dataset(config("eval_file: 'y.csv' "), Part::kEvaluation);
  EXPECT_EQ(dataset->spec().classes, 2);
  EXPECT_EQ(dataset->size(), 1);
  EXPECT_EQ(dataset->bad_records().count, 2);
  EXPECT_SAYS(dataset->bad_records().first[0], folder.path("y.csv") + ": line 2");
}

TEST_F(BadCsvTest, FailsAboveTheLimitOrWithoutGoodRows) {
  std::string text = "1,2,0\n";
  for (int i = 0; i < 10; ++i) text += "x,1,0\n";
  EXPECT_SAYS(error(text), "10 bad records, more than data.max_bad_records, 9; the first: " +
                               folder.path("x.csv") + ": line 2, column 1: 'x' is not a number");
  EXPECT_SAYS(error("a,b,c\nx,1,0\n"), "has no good rows; the first error: ");
  EXPECT_SAYS(error("1,2,7\n3,4,8\n", "classes: 2 "), "has no good records, only 2 bad ones");
}

TEST_F(BadCsvTest, DamagedGzipLosesTheTruncatedLine) {
  std::string text;
  for (int i = 0; i < 4000; ++i) {
    text += std::to_string(i * 7919 % 10007) + "," + std::to_string(i) + ",1\n";
  }
  const std::string zipped = gzip(text);
  folder.write("x.csv", zipped.substr(0, zipped.size() / 2));
  const auto dataset = open_dataset(config(""), Part::kTraining);
  EXPECT_GT(dataset->size(), 100);
  EXPECT_LT(dataset->size(), 3900);
  for (int64_t i = 0; i < dataset->size(); ++i) {
    const auto input = values<float>(sample(*dataset, i).input);
    ASSERT_EQ(input[0], static_cast<float>(i * 7919 % 10007)) << "a truncated number at " << i;
  }
  EXPECT_EQ(dataset->bad_records().count, 1);
  EXPECT_SAYS(dataset->bad_records().first[0], folder.path("x.csv") + ": line " +
                                                   std::to_string(dataset->size() + 1) +
                                                   ": cannot be read: gzip stream ends early");
}

TEST(BadRecordsTest, LimitMustNotBeNegative) {
  const Folder folder;
  EXPECT_SAYS(config_error(folder.config("synthetic {} max_bad_records: -1")),
              "data.max_bad_records: -1 is less than 0");
}

}  // namespace
}  // namespace trireme::data
