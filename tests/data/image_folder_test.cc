#include <gmock/gmock.h>
#include <sys/stat.h>

#include "data/formats/formats.h"
#include "tests/data/files.h"

namespace trireme::data {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::Folder;
using testing::message;

namespace fs = std::filesystem;

class ImageFolderTest : public ::testing::Test {
 protected:
  ImageFolderTest() {
    folder.write("train/dog/b.jpg", "dog b");
    folder.write("train/dog/a.JPEG", "dog a");
    folder.write("train/cat/deep/er/c.png", "cat c");
    folder.write("train/cat/z.Jpg", "cat z");
    folder.write("train/Zebra/1.jpg", "zebra 1");
    folder.write("val/dog/v.jpg", "dog v");
  }
  std::unique_ptr<Records> open(Part part = Part::kTraining) const {
    return open_image_folder(config, part, {});
  }
  std::string data_error(Part part = Part::kTraining) const {
    return message<DataError>([&] { open(part); });
  }
  // Returns the label and contents of each record.
  static std::vector<std::string> all(const Records& records) {
    std::vector<std::string> found;
    for (int64_t i = 0; i < records.size(); ++i) {
      std::vector<uint8_t> bytes;
      records.read(i, bytes);
      found.push_back(std::to_string(records.label(i)) + " " +
                      std::string(bytes.begin(), bytes.end()));
    }
    return found;
  }
  Folder folder;
  DataConfig config = folder.config("image_folder {}");
};

TEST_F(ImageFolderTest, ServesFilesByClassAndName) {
  const auto records = open();
  EXPECT_THAT(all(*records), ElementsAre("0 zebra 1", "1 cat c", "1 cat z", "2 dog a", "2 dog b"));
  EXPECT_THAT(records->class_names(), ElementsAre("Zebra", "cat", "dog"));
  EXPECT_EQ(records->classes(), 3);
  EXPECT_EQ(records->where(1), folder.path("train/cat/deep/er/c.png"));
  EXPECT_EQ(records->source(), "ImageFolder " + folder.path("train") + " (3 classes)");
}

TEST_F(ImageFolderTest, CountsFilesThatAreIgnored) {
  folder.write("train/dog/c.webp", "x");
  folder.write("train/cat/deep/d.bmp", "x");
  EXPECT_EQ(open()->source(), "ImageFolder " + folder.path("train") +
                                  " (3 classes; 2 files are ignored, since their names do not end "
                                  "in .jpg, .jpeg or .png)");
}

TEST_F(ImageFolderTest, EvaluationHasTheClassesOfTraining) {
  const auto records = open(Part::kEvaluation);
  EXPECT_THAT(all(*records), ElementsAre("2 dog v"));
  EXPECT_EQ(records->classes(), 3);
  folder.write("val/horse/x.jpg", "x");
  EXPECT_EQ(data_error(Part::kEvaluation),
            folder.path("val/horse") + ": is not a class: the training folder " +
                folder.path("train") + " has no folder of that name");
}

TEST_F(ImageFolderTest, IgnoresHiddenAndOtherFiles) {
  folder.write("train/cat/notes.txt", "x");
  folder.write("train/cat/.hidden.jpg", "x");
  folder.write("train/cat/._z.Jpg", "x");
  folder.write("train/cat/.git/x.jpg", "x");
  folder.write("train/.cache/x.jpg", "x");
  folder.write("train/readme.jpg", "in no class");
  EXPECT_EQ(open()->size(), 5);
  EXPECT_EQ(open()->classes(), 3);
}

// A sparse file takes no space on disk.
TEST_F(ImageFolderTest, AHugeFileIsABadRecord) {
  folder.write("train/cat/huge.jpg", "\xff\xd8\xff");
  fs::resize_file(folder.path("train/cat/huge.jpg"), uint64_t{3} << 30);
  std::vector<uint8_t> bytes;
  EXPECT_EQ(message<DataError>([&] { open()->read(2, bytes); }),
            folder.path("train/cat/huge.jpg") +
                ": has 3221225472 bytes; a record has at most 1073741824");
  EXPECT_TRUE(bytes.empty());
}

TEST_F(ImageFolderTest, NamesOfClassesCannotActOnTheTerminal) {
  folder.write("train/x\nwarning: \x1b[2J/1.jpg", "one");
  EXPECT_EQ(open()->class_names().back(), "x\\nwarning: \\x1b[2J");
  EXPECT_THAT(all(*open()), Contains("3 one"));
}

TEST_F(ImageFolderTest, FollowsLinks) {
  folder.write("elsewhere/1.jpg", "one");
  fs::create_directory_symlink(folder.path("elsewhere"), folder.path("train/ant"));
  fs::create_symlink(folder.path("elsewhere/1.jpg"), folder.path("train/cat/a.jpg"));
  EXPECT_THAT(all(*open()), ElementsAre("0 zebra 1", "1 one", "2 one", "2 cat c", "2 cat z",
                                        "3 dog a", "3 dog b"));
}

TEST_F(ImageFolderTest, CyclicLinksAreAnError) {
  fs::create_directory_symlink(folder.path("train/cat"), folder.path("train/cat/deep/cat"));
  EXPECT_SAYS(data_error(), "folders are nested more than 32 deep");
}

TEST_F(ImageFolderTest, ABrokenLinkIsABadRecord) {
  fs::create_symlink("nowhere", folder.path("train/cat/a.jpg"));
  const std::string expected =
      folder.path("train/cat/a.jpg") + ": is a link to a file that does not exist";
  EXPECT_EQ(data_error(), expected);
  config.set_on_bad_record(DataConfig::SKIP);
  const auto records = open();
  EXPECT_EQ(records->size(), 5);
  EXPECT_THAT(records->bad_records().first, ElementsAre(expected));
}

// Reading it would block or never end.
TEST_F(ImageFolderTest, APipeOrADeviceIsABadRecord) {
  ASSERT_EQ(mkfifo(folder.path("train/cat/a.png").c_str(), 0666), 0);
  fs::create_symlink("/dev/zero", folder.path("train/dog/zero.jpg"));
  ASSERT_EQ(mkfifo(folder.path("train/dog/notes").c_str(), 0666), 0);
  const std::string cat = folder.path("train/cat/a.png") + ": is not a regular file";
  EXPECT_EQ(data_error(), cat);
  config.set_on_bad_record(DataConfig::SKIP);
  const auto records = open();
  EXPECT_EQ(records->size(), 5);
  EXPECT_THAT(records->bad_records().first,
              ElementsAre(cat, folder.path("train/dog/zero.jpg") + ": is not a regular file"));
}

TEST_F(ImageFolderTest, AClassWithoutImagesIsABadRecord) {
  folder.write("train/cow/notes.txt", "x");
  const std::string expected = folder.path("train/cow") +
                               ": class 'cow' has no images (.jpg, .jpeg or .png); it has 1 other "
                               "file(s)";
  EXPECT_EQ(data_error(), expected);
  config.set_on_bad_record(DataConfig::SKIP);
  const auto records = open();
  EXPECT_THAT(all(*records), ElementsAre("0 zebra 1", "1 cat c", "1 cat z", "3 dog a", "3 dog b"));
  EXPECT_EQ(records->bad_records().count, 1);
  EXPECT_THAT(records->bad_records().first, ElementsAre(expected));
  config.set_max_bad_records(0);
  EXPECT_SAYS(data_error(), "1 bad records, more than data.max_bad_records, 0");
}

TEST_F(ImageFolderTest, MissingOrEmptyFolders) {
  fs::remove_all(folder.path("train"));
  EXPECT_EQ(data_error(), folder.path("train") + ": cannot be opened: No such file or directory");
  fs::create_directory(folder.path("train"));
  EXPECT_EQ(data_error(),
            folder.path("train") + ": has no subfolders; it needs one for each class");
  fs::create_directory(folder.path("train/a"));
  config.set_on_bad_record(DataConfig::SKIP);
  EXPECT_SAYS(data_error(), "has no good records, only 1 bad ones; the first: ");
  config.set_root("no/such/folder");
  EXPECT_SAYS(message<DataError>([&] { open(); }), "data.root: 'no/such/folder' is not a folder");
}

TEST_F(ImageFolderTest, UnreadableFiles) {
  const auto records = open();
  std::vector<uint8_t> bytes;
  fs::remove(folder.path("train/dog/a.JPEG"));
  EXPECT_EQ(message<DataError>([&] { records->read(3, bytes); }),
            folder.path("train/dog/a.JPEG") + ": cannot be opened: No such file or directory");
  fs::create_directory(folder.path("train/dog/a.JPEG"));
  EXPECT_EQ(message<DataError>([&] { records->read(3, bytes); }),
            folder.path("train/dog/a.JPEG") + ": is a folder");
  records->read(4, bytes);
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()), "dog b");
}

TEST_F(ImageFolderTest, IdentityChangesWithTheFiles) {
  const uint64_t identity = open()->identity();
  EXPECT_EQ(open()->identity(), identity);
  folder.write("train/cat/y.jpg", "new");
  const uint64_t added = open()->identity();
  EXPECT_NE(added, identity);
  fs::rename(folder.path("train/cat"), folder.path("train/cats"));
  EXPECT_NE(open()->identity(), added);
  // Overwriting changes no folder.
  const uint64_t renamed = open()->identity();
  folder.write("train/cats/y.jpg", "newer");
  EXPECT_NE(open()->identity(), renamed);
}

}  // namespace
}  // namespace trireme::data
