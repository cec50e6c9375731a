#include <gmock/gmock.h>
#include <sys/resource.h>

#include "tests/data/files.h"

namespace trireme::data {
namespace {

using testing::config_error;
using testing::data_error;
using testing::Folder;
using testing::gzip;
using testing::idx;
using testing::pixels;
using testing::Sample;
using testing::sample;

constexpr const char* kTrainImages = "train-images-idx3-ubyte";
constexpr const char* kTrainLabels = "train-labels-idx1-ubyte";
const std::string kFiveLabels{3, 0, 9, 1, 7};

class IdxTest : public ::testing::Test {
 protected:
  IdxTest() {
    folder.write(kTrainImages, idx({5, 2, 3}, pixels(30)));
    folder.write(kTrainLabels, idx({5}, kFiveLabels));
    folder.write("t10k-images-idx3-ubyte", idx({2, 2, 3}, pixels(12, 100)));
    folder.write("t10k-labels-idx1-ubyte", idx({2}, std::string{4, 5}));
  }
  Folder folder;
  DataConfig config = folder.config("idx {}");
};

TEST_F(IdxTest, ServesImagesAndLabelsOfBothParts) {
  const auto training = open_dataset(config, Part::kTraining);
  ASSERT_EQ(training->size(), 5);
  EXPECT_EQ(training->spec().input,
            (TensorSpec{DType::kU8, Shape{1, 2, 3}, Layout::channels_last()}));
  EXPECT_EQ(training->spec().target, (TensorSpec{DType::kI32, Shape{}, {}}));
  EXPECT_EQ(training->spec().classes, 10);
  EXPECT_FLOAT_EQ(training->spec().scale, 1.0F / 255);
  for (int64_t i = 0; i < 5; ++i) {
    const Sample s = sample(*training, i);
    const std::string expected = pixels(6, static_cast<size_t>(i) * 6);
    EXPECT_EQ(std::memcmp(s.input.data(), expected.data(), 6), 0) << i;
    EXPECT_EQ(s.label(), kFiveLabels[static_cast<size_t>(i)]);
  }
  const auto evaluation = open_dataset(config, Part::kEvaluation);
  ASSERT_EQ(evaluation->size(), 2);
  EXPECT_EQ(sample(*evaluation, 1).label(), 5);
  EXPECT_NO_THROW(check_compatible(*training, *evaluation));
  EXPECT_SAYS(training->description(), "IDX ");
  EXPECT_SAYS(training->description(), ": 5 samples of u8 [1, 2, 3] in 10 classes");
}

TEST_F(IdxTest, ReadsGzip) {
  Folder zipped;
  zipped.write(std::string(kTrainImages) + ".gz", gzip(idx({5, 2, 3}, pixels(30))));
  // Two members in one file, as some tools write them.
  const std::string labels = idx({5}, kFiveLabels);
  zipped.write(std::string(kTrainLabels) + ".gz",
               gzip(labels.substr(0, 7)) + gzip(labels.substr(7)));
  const auto a = open_dataset(config, Part::kTraining);
  const auto b = open_dataset(zipped.config("idx {}"), Part::kTraining);
  ASSERT_EQ(a->size(), b->size());
  for (int64_t i = 0; i < a->size(); ++i) EXPECT_EQ(sample(*a, i), sample(*b, i));
}

TEST_F(IdxTest, FourDimensionsIncludeChannels) {
  folder.write("color", idx({5, 3, 2, 1}, pixels(30)));
  const auto dataset =
      open_dataset(folder.config("idx { train_images: 'color' classes: 12 }"), Part::kTraining);
  EXPECT_EQ(dataset->spec().input,
            (TensorSpec{DType::kU8, Shape{3, 2, 1}, Layout::channels_last()}));
  const std::string planes = pixels(30);
  for (const size_t i : {size_t{0}, size_t{4}}) {
    const std::string p = planes.substr(i * 6, 6);
    EXPECT_EQ(testing::values<char>(sample(*dataset, static_cast<int64_t>(i)).input),
              (std::vector<char>{p[0], p[2], p[4], p[1], p[3], p[5]}));
  }
  EXPECT_EQ(dataset->spec().classes, 12);
}

TEST_F(IdxTest, FindsNamesWithADot) {
  Folder dotted;
  dotted.write("train-images.idx3-ubyte", idx({5, 2, 3}, pixels(30)));
  dotted.write("train-labels.idx1-ubyte.gz", gzip(idx({5}, kFiveLabels)));
  EXPECT_EQ(open_dataset(dotted.config("idx {}"), Part::kTraining)->size(), 5);
}

TEST_F(IdxTest, MissingFile) {
  Folder empty;
  const std::string error = data_error(empty.config("idx {}"));
  EXPECT_SAYS(error, empty.path("").substr(0, empty.path("").size() - 1) + ": has no file");
  EXPECT_SAYS(error, "train-images-idx3-ubyte or train-images-idx3-ubyte.gz");
  EXPECT_SAYS(error, "launch/get-data");
}

TEST_F(IdxTest, MissingFolder) {
  DataConfig elsewhere = config;
  elsewhere.set_root("no/such/folder");
  EXPECT_SAYS(data_error(elsewhere), "data.root: 'no/such/folder' is not a folder in /");
}

TEST_F(IdxTest, WrongMagic) {
  folder.write(kTrainImages, "\x89PNG and so on");
  EXPECT_SAYS(
      data_error(config),
      folder.path(kTrainImages) + ": begins with 89 50 4e 47; IDX images begin with 00 00 08 03");
}

TEST_F(IdxTest, WrongElementType) {
  std::string floats = idx({5, 2, 3}, pixels(120));
  floats[2] = 0x0d;
  folder.write(kTrainImages, floats);
  EXPECT_SAYS(data_error(config), "has elements of IDX type 0x0d; only unsigned bytes, 0x08");
}

TEST_F(IdxTest, ImagesAndLabelsSwapped) {
  folder.write(kTrainImages, idx({5}, kFiveLabels));
  EXPECT_SAYS(data_error(config),
              folder.path(kTrainImages) + ": has 1 dimension(s); images have 3 or 4");
  folder.write(kTrainImages, idx({5, 2, 3}, pixels(30)));
  folder.write(kTrainLabels, idx({5, 2, 3}, pixels(30)));
  EXPECT_SAYS(data_error(config),
              folder.path(kTrainLabels) + ": has 3 dimension(s); labels have 1");
}

TEST_F(IdxTest, ShorterThanItsHeader) {
  folder.write(kTrainImages, std::string("\0\0", 2));
  EXPECT_SAYS(data_error(config), "is 2 bytes long; the header alone has 16 or more");
  folder.write(kTrainImages, idx({5, 2, 3}, "").substr(0, 11));
  EXPECT_SAYS(data_error(config), "is 11 bytes long; the header alone has 16");
  folder.write(kTrainImages, "");
  EXPECT_SAYS(data_error(config), "is 0 bytes long");
}

TEST_F(IdxTest, Truncated) {
  folder.write(kTrainImages, idx({5, 2, 3}, pixels(23)));
  EXPECT_SAYS(
      data_error(config),
      folder.path(kTrainImages) +
          ": record 3: is truncated: the header declares [5, 2, 3] elements, but the file has 23");
}

TEST_F(IdxTest, TrailingBytes) {
  folder.write(kTrainLabels, idx({5}, kFiveLabels + "x"));
  EXPECT_SAYS(data_error(config),
              folder.path(kTrainLabels) + ": has data after its last record, 4 of [5]");
}

TEST_F(IdxTest, DimensionsThatExceedMemory) {
  folder.write(kTrainImages, idx({0xffffffff, 0xffffffff, 0xffffffff}, pixels(30)));
  EXPECT_SAYS(data_error(config),
              "is truncated: the header declares [4294967295, 4294967295, 4294967295]");
  folder.write(kTrainLabels, idx({0xffffffff}, kFiveLabels));
  config.set_on_bad_record(DataConfig::SKIP);
  config.set_max_bad_records(int64_t{1} << 40);
  EXPECT_SAYS(data_error(config), "has no good records");
}

TEST_F(IdxTest, NoRecords) {
  folder.write(kTrainImages, idx({0, 2, 3}, ""));
  EXPECT_SAYS(data_error(config), "has no elements: its extents are [0, 2, 3]");
}

TEST_F(IdxTest, LabelOutOfRange) {
  folder.write(kTrainLabels, idx({5}, std::string{3, 0, 10, 1, 7}));
  EXPECT_SAYS(data_error(config),
              folder.path(kTrainLabels) + ": record 2: label 10 is not in [0, 10)");
  EXPECT_SAYS(data_error(config), "data.idx.classes");
}

TEST_F(IdxTest, RequiresAsManyLabelsAsImages) {
  folder.write(kTrainLabels, idx({4}, kFiveLabels.substr(0, 4)));
  EXPECT_SAYS(data_error(config), folder.path(kTrainLabels) + ": has 4 labels, but " +
                                      folder.path(kTrainImages) + " has 5 images");
}

TEST_F(IdxTest, TruncatedGzip) {
  std::filesystem::remove(folder.path(kTrainImages));
  const std::string zipped = gzip(idx({5, 2, 3}, pixels(30)));
  for (size_t length = 2; length < zipped.size(); ++length) {
    folder.write(std::string(kTrainImages) + ".gz", zipped.substr(0, length));
    EXPECT_SAYS(data_error(config), folder.path(kTrainImages) +
                                        ".gz: gzip stream ends early, after " +
                                        std::to_string(length) + " bytes");
  }
}

// Zeros are compressed 1000-fold. The header says how many bytes to decompress.
TEST_F(IdxTest, GzipThatIsLargerThanItsHeaderDeclares) {
  std::filesystem::remove(folder.path(kTrainImages));
  const std::string path = std::string(kTrainImages) + ".gz";
  std::string zipped = gzip(idx({5, 2, 3}, pixels(30)));
  const std::string zeros = gzip(std::string(size_t{1} << 20, '\0'));
  for (int i = 0; i < 1000; ++i) zipped += zeros;
  folder.write(path, zipped);
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  EXPECT_SAYS(data_error(config),
              folder.path(path) + ": has data after its last record, 4 of [5, 2, 3]");
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss, before.ru_maxrss + (100 << 10)) << "kB";

  folder.write(path, gzip(idx({0xffffffff, 0xffff, 0xffff}, pixels(30))));
  EXPECT_SAYS(data_error(config), "according to its header, but ");
}

TEST_F(IdxTest, DamagedGzip) {
  std::filesystem::remove(folder.path(kTrainImages));
  const std::string path = std::string(kTrainImages) + ".gz";
  std::string zipped = gzip(idx({5, 2, 3}, pixels(30)));
  zipped[zipped.size() - 8] ^= 1;  // the checksum's first byte
  folder.write(path, zipped);
  EXPECT_SAYS(data_error(config), folder.path(path) + ": gzip data is damaged at byte ");
  EXPECT_SAYS(data_error(config), "incorrect data check");
  zipped = gzip(idx({5, 2, 3}, pixels(30)));
  folder.write(path, zipped + "more");
  EXPECT_SAYS(data_error(config), "has 4 bytes after its gzip stream, which ends at byte " +
                                      std::to_string(zipped.size()));
}

TEST_F(IdxTest, EvaluationImagesMustHaveTheSameSize) {
  folder.write("t10k-images-idx3-ubyte", idx({2, 3, 3}, pixels(18)));
  const auto training = open_dataset(config, Part::kTraining);
  const auto evaluation = open_dataset(config, Part::kEvaluation);
  const std::string error =
      testing::message<DataError>([&] { check_compatible(*training, *evaluation); });
  EXPECT_SAYS(error, "2 samples of u8 [1, 3, 3]");
  EXPECT_SAYS(error, "5 samples of u8 [1, 2, 3]");
}

TEST_F(IdxTest, BadConfiguration) {
  EXPECT_SAYS(config_error(folder.config("idx { classes: 1 }")),
              "data.idx.classes: 1 is not in [2, ");
  EXPECT_SAYS(config_error(folder.config("idx { train_labels: '' }")),
              "data.idx.train_labels: is empty");
}

}  // namespace
}  // namespace trireme::data
