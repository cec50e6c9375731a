#include <gmock/gmock.h>

#include "tests/data/files.h"

namespace trireme::data {
namespace {

using testing::data_error;
using testing::Folder;
using testing::gzip;
using testing::pixels;
using testing::Sample;
using testing::sample;

constexpr size_t kPixels = 3 * 32 * 32;

std::string record(std::initializer_list<char> labels, size_t from) {
  return std::string(labels) + pixels(kPixels, from);
}

// Converts an image from planes to channels-last.
std::vector<char> channels_last(const std::string& planes) {
  std::vector<char> out;
  for (size_t i = 0; i < kPixels / 3; ++i) {
    for (size_t c = 0; c < 3; ++c) out.push_back(planes[c * (kPixels / 3) + i]);
  }
  return out;
}

class CifarTest : public ::testing::Test {
 protected:
  CifarTest() {
    for (char i = 0; i < 5; ++i) {
      const auto at = static_cast<size_t>(i) * 2;
      folder.write("data_batch_" + std::to_string(i + 1) + ".bin",
                   record({i}, at) + record({static_cast<char>(9 - i)}, at + 1));
    }
    folder.write("test_batch.bin", record({6}, 50));
  }
  Folder folder;
  DataConfig config = folder.config("cifar {}");
};

TEST_F(CifarTest, ServesAllFilesInOrder) {
  const auto training = open_dataset(config, Part::kTraining);
  ASSERT_EQ(training->size(), 10);
  EXPECT_EQ(training->spec().input,
            (TensorSpec{DType::kU8, Shape{3, 32, 32}, Layout::channels_last()}));
  EXPECT_EQ(training->spec().classes, 10);
  for (int64_t i = 0; i < 10; ++i) {
    const Sample s = sample(*training, i);
    EXPECT_EQ(testing::values<char>(s.input),
              channels_last(pixels(kPixels, static_cast<size_t>(i))))
        << i;
    EXPECT_EQ(s.label(), i % 2 == 0 ? i / 2 : 9 - i / 2);
  }
  const auto evaluation = open_dataset(config, Part::kEvaluation);
  ASSERT_EQ(evaluation->size(), 1);
  EXPECT_EQ(sample(*evaluation, 0).label(), 6);
  EXPECT_SAYS(evaluation->description(), "CIFAR-10 " + folder.path("test_batch.bin") +
                                             ": 1 samples of u8 [3, 32, 32] in 10 classes");
}

TEST_F(CifarTest, FindsFilesInTheFolderOfTheArchive) {
  Folder archive;
  archive.write("cifar-10-batches-bin/test_batch.bin", record({6}, 50));
  EXPECT_EQ(open_dataset(archive.config("cifar {}"), Part::kEvaluation)->size(), 1);
}

TEST_F(CifarTest, Cifar100HasTwoLabels) {
  folder.write("train.bin.gz", gzip(record({19, 99}, 0) + record({0, 42}, 1)));
  const auto fine = open_dataset(folder.config("cifar { variant: CIFAR100 }"), Part::kTraining);
  EXPECT_EQ(fine->spec().classes, 100);
  EXPECT_EQ(sample(*fine, 0).label(), 99);
  EXPECT_EQ(sample(*fine, 1).label(), 42);
  const auto coarse =
      open_dataset(folder.config("cifar { variant: CIFAR100_COARSE }"), Part::kTraining);
  EXPECT_EQ(coarse->spec().classes, 20);
  EXPECT_EQ(sample(*coarse, 0).label(), 19);
  EXPECT_EQ(sample(*coarse, 0).input, sample(*fine, 0).input);
}

TEST_F(CifarTest, FilesByName) {
  const auto dataset =
      open_dataset(folder.config("cifar { train_file: ['data_batch_2.bin', 'test_batch.bin'] }"),
                   Part::kTraining);
  EXPECT_EQ(dataset->size(), 3);
  EXPECT_EQ(sample(*dataset, 2).label(), 6);
}

TEST_F(CifarTest, MissingFile) {
  std::filesystem::remove(folder.path("data_batch_4.bin"));
  EXPECT_SAYS(data_error(config),
              "has no file data_batch_4.bin or data_batch_4.bin.gz or "
              "cifar-10-batches-bin/data_batch_4.bin");
  EXPECT_SAYS(data_error(config), "launch/get-data");
  folder.write("train-0.tar", "");
  EXPECT_SAYS(data_error(config), "data.webdataset reads its *.tar files");
}

TEST_F(CifarTest, TruncatedOrEmpty) {
  folder.write("data_batch_2.bin", (record({1}, 0) + record({2}, 0)).substr(0, 5000));
  EXPECT_SAYS(data_error(config),
              folder.path("data_batch_2.bin") +
                  ": record 1: is truncated: the file's 5000 bytes are not a multiple of 3073");
  folder.write("data_batch_2.bin", "");
  EXPECT_SAYS(data_error(config), folder.path("data_batch_2.bin") + ": is empty");
}

TEST_F(CifarTest, SuggestsAnotherVariant) {
  folder.write("data_batch_1.bin", record({1, 2}, 0));
  EXPECT_SAYS(data_error(config), "but of 3074; is data.cifar.variant right?");
}

TEST_F(CifarTest, LabelOutOfRange) {
  folder.write("data_batch_3.bin", record({1}, 0) + record({10}, 0));
  EXPECT_SAYS(data_error(config),
              folder.path("data_batch_3.bin") + ": record 1: label 10 is not in [0, 10)");
}

}  // namespace
}  // namespace trireme::data
