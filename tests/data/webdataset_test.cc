#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "data/formats/formats.h"
#include "data/formats/tar_index_files.h"
#include "tests/data/files.h"
#include "tests/data/tars.h"

namespace trireme::data {
namespace {

using ::testing::ElementsAre;
using testing::Folder;
using testing::gnu_member;
using ::testing::IsEmpty;
using testing::member;
using testing::message;
using testing::pax_member;
using testing::pixels;
using testing::sample_members;
using testing::tar_end;

namespace fs = std::filesystem;

// Returns bytes that stand for an image file.
std::string image(int number) { return pixels(static_cast<size_t>(100 + number * 37), number); }

// Returns a shard with samples first, first + 1, ..., whose labels are their numbers modulo 10.
std::string shard(int first, int count) {
  std::string bytes;
  for (int i = first; i < first + count; ++i) {
    bytes += sample_members(fmt::format("{:06}", i), image(i), std::to_string(i % 10));
  }
  return bytes + tar_end();
}

std::string text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::string read(const Records& records, int64_t index) {
  std::vector<uint8_t> bytes;
  records.read(index, bytes);
  return text(bytes);
}

class WebDatasetTest : public ::testing::Test {
 protected:
  std::unique_ptr<Records> open(Part part = Part::kTraining) const {
    return open_webdataset(config, part, options);
  }
  // Opens a single shard with these bytes.
  std::unique_ptr<Records> open(const std::string& bytes) const {
    folder.write("t-0.tar", bytes);
    return open();
  }
  std::string data_error(const std::string& bytes) const {
    return message<DataError>([&] { open(bytes); });
  }
  std::string at(const std::string& what) const { return folder.path("t-0.tar") + ": " + what; }
  // Returns the messages about the bad records of a shard. Expects the same messages when the saved
  // index is read, and the first message as an error if bad records are not skipped.
  std::vector<std::string> bad(const std::string& bytes, int64_t good) {
    EXPECT_NE(data_error(bytes), "no exception");
    config.set_on_bad_record(DataConfig::SKIP);
    const auto records = open(bytes);
    EXPECT_EQ(records->size(), good);
    const BadRecords found = records->bad_records();
    EXPECT_EQ(found.count, std::ssize(found.first));
    messages.clear();
    const auto again = open();
    EXPECT_THAT(messages, IsEmpty()) << "the index was built again";
    EXPECT_EQ(again->size(), good);
    EXPECT_EQ(again->bad_records().count, found.count);
    EXPECT_EQ(again->bad_records().first, found.first);
    config.set_on_bad_record(DataConfig::FAIL);
    EXPECT_EQ(message<DataError>([&] { open(); }), found.first.front());
    return found.first;
  }

  Folder folder;
  DataConfig config = folder.config("webdataset { train: 't-*.tar' eval: 'e-*.tar' }");
  std::vector<std::string> messages;
  OpenOptions options{.progress = [this](std::string_view text) { messages.emplace_back(text); }};
};

TEST_F(WebDatasetTest, ServesSamplesOfAllShardsInOrder) {
  folder.write("t-0.tar", shard(0, 5));
  folder.write("t-1.tar", shard(5, 1));
  folder.write("t-2.tar", tar_end());  // a shard without samples
  folder.write("t-3.tar", shard(6, 7));
  const auto records = open();
  ASSERT_EQ(records->size(), 13);
  EXPECT_EQ(records->classes(), 10);
  for (int i = 0; i < 13; ++i) {
    EXPECT_EQ(records->label(i), i % 10);
    EXPECT_EQ(read(*records, i), image(i)) << i;
  }
  EXPECT_EQ(records->where(0), folder.path("t-0.tar") + ": 000000.jpg");
  EXPECT_EQ(records->where(5), folder.path("t-1.tar") + ": 000005.jpg");
  EXPECT_EQ(records->where(12), folder.path("t-3.tar") + ": 000012.jpg");
  EXPECT_EQ(records->source(), "WebDataset " + folder.path("t-*.tar") + " (4 shards)");
  EXPECT_EQ(records->bad_records().count, 0);
}

TEST_F(WebDatasetTest, ReadsLongNamesAndFolders) {
  const std::string key = "train/" + std::string(120, 'k') + "/0001";
  const std::string bytes = pax_member(key + ".jpg", image(1)) + pax_member(key + ".cls", "3") +
                            gnu_member(key + "2.png", image(2)) + gnu_member(key + "2.cls", "4\n") +
                            member("train", "", '5') +  // a folder
                            sample_members("b/0001", image(3), " 5 ") + tar_end();
  const auto records = open(bytes);
  ASSERT_EQ(records->size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(read(*records, i), image(i + 1));
    EXPECT_EQ(records->label(i), i + 3);
  }
  EXPECT_EQ(records->where(0), at(key + ".jpg"));
}

TEST_F(WebDatasetTest, ReadsUtf8NamesInAnyLocale) {
  const std::string key = "\xc3\xbc-\xe6\x97\xa5";
  const auto records = open(pax_member(key + ".jpg", image(1)) + pax_member(key + ".cls", "3") +
                            sample_members(key + "2", image(2), "1") + tar_end());
  ASSERT_EQ(records->size(), 2);
  EXPECT_EQ(records->where(0), at(key + ".jpg"));
  EXPECT_EQ(read(*records, 1), image(2));
}

TEST_F(WebDatasetTest, IgnoresOtherMembers) {
  const auto records =
      open(member("README", "text") + member("._0001.jpg", "of a Mac") + member("0001.txt", "?") +
           member("0001.JPG", image(1)) + member("0001.seg.png", "mask") +
           member("0001.json", "{") + member("0001.cls", "1") + member("0002.cls", "0") +
           member("0002.jpeg", image(2)) + tar_end());
  ASSERT_EQ(records->size(), 2);
  EXPECT_EQ(read(*records, 0), image(1));
  EXPECT_EQ(read(*records, 1), image(2));
  EXPECT_EQ(records->label(1), 0);
}

TEST_F(WebDatasetTest, ReadsLabelsFromJson) {
  config.mutable_webdataset()->set_json_label("meta.label");
  const auto json = [&](const std::string& key, const std::string& value) {
    return member(key + ".jpg", image(1)) + member(key + ".cls", "9") +
           member(key + ".json", value);
  };
  const auto records = open(json("a", R"({"meta": {"label": 3, "x": []}})") +
                            json("b", R"({"label": 7, "meta": {"label": " 4 "}})") + tar_end());
  ASSERT_EQ(records->size(), 2);
  EXPECT_EQ(records->label(0), 3);
  EXPECT_EQ(records->label(1), 4);
  EXPECT_THAT(
      bad(json("a", "{") + json("b", R"({"meta": 3})") + json("c", R"({"meta":{}})") +
              json("d", R"({"meta":{"label":[1]}})") + json("e", R"({"meta":{"label":1.5}})") +
              json("f", R"({"meta":{"label":2}})") + tar_end(),
          1),
      ElementsAre(at("a.json: is not valid JSON"), at("b.json: has no field 'meta.label'"),
                  at("c.json: has no field 'meta.label'"),
                  at("d.json: field 'meta.label' is not a number but of type array"),
                  at("e.json: label '1.5' is not an integer")));
}

TEST_F(WebDatasetTest, DeeplyNestedJsonIsAnError) {
  config.mutable_webdataset()->set_json_label("x");
  const std::string deep(500000, '[');
  EXPECT_EQ(
      data_error(member("a.jpg", "x") +
                 member("a.json", "{\"x\":" + deep + std::string(500000, ']') + "}") + tar_end()),
      at("a.json: is not valid JSON"));
}

TEST_F(WebDatasetTest, EvaluationHasTheClassesOfTraining) {
  folder.write("t-0.tar", shard(0, 7));
  folder.write("e-0.tar", shard(0, 3));
  EXPECT_EQ(open()->classes(), 7);
  EXPECT_EQ(open(Part::kEvaluation)->classes(), 7);
  config.mutable_webdataset()->set_classes(12);
  EXPECT_EQ(open(Part::kEvaluation)->classes(), 12);
  config.mutable_webdataset()->set_classes(1);
  EXPECT_SAYS(message<ConfigError>([&] { open(); }), "data.webdataset.classes: 1 is not in [2, ");
}

TEST_F(WebDatasetTest, LabelOutOfRange) {
  folder.write("t-0.tar", shard(0, 7));
  folder.write("e-0.tar", shard(5, 4));
  const std::string wrong = folder.path("e-0.tar") + ": 000007.jpg: label 7 is not in [0, 7)";
  EXPECT_EQ(message<DataError>([&] { open(Part::kEvaluation); }), wrong);
  config.set_on_bad_record(DataConfig::SKIP);
  const auto records = open(Part::kEvaluation);
  ASSERT_EQ(records->size(), 2);
  EXPECT_EQ(read(*records, 1), image(6));
  EXPECT_EQ(records->bad_records().count, 2);
  EXPECT_EQ(records->bad_records().first.front(), wrong);
  config.set_max_bad_records(1);
  EXPECT_SAYS(message<DataError>([&] { open(Part::kEvaluation); }),
              "2 bad records, more than data.max_bad_records, 1; the first: " + wrong);
  folder.write("e-0.tar", shard(7, 3));
  config.set_max_bad_records(100);
  EXPECT_SAYS(message<DataError>([&] { open(Part::kEvaluation); }),
              "has no good records, only 3 bad ones; the first: ");
}

TEST_F(WebDatasetTest, InvalidLabels) {
  const std::string good = sample_members("z", image(0), "1");
  EXPECT_THAT(bad(sample_members("a", image(1), "cat") + sample_members("b", image(1), "-1") +
                      sample_members("c", image(1), "") +
                      sample_members("d", image(1), "99999999999999999999") +
                      sample_members("e", image(1), "1 2") + good + tar_end(),
                  1),
              ElementsAre(at("a.cls: label 'cat' is not an integer"),
                          at("b.cls: label -1 is not in [0, 16777215]"),
                          at("c.cls: label '' is not an integer"),
                          at("d.cls: label '99999999999999999999' is not an integer"),
                          at("e.cls: label '1 2' is not an integer")));
}

TEST_F(WebDatasetTest, IncompleteSamples) {
  EXPECT_THAT(bad(member("a.jpg", image(1)) + member("b.cls", "1") + member("c.txt", "?") +
                      sample_members("d", "", "1") + member("e.jpg", "", '2') +
                      member("e.cls", "1") + sample_members("z", image(0), "1") + tar_end(),
                  1),
              ElementsAre(at("a: has no label (.cls)"), at("b: has no image (.jpg, .jpeg or .png)"),
                          at("c: has no image (.jpg, .jpeg or .png)"), at("d.jpg: is empty"),
                          at("e.jpg: is a link, a folder or a sparse file")));
}

TEST_F(WebDatasetTest, DuplicateKeysAndMembers) {
  const std::string one = sample_members("a", image(1), "1");
  const std::string other = sample_members("b", image(2), "2");
  EXPECT_THAT(bad(one + one + other + tar_end(), 2),
              ElementsAre(at("a: another sample of the shard has the same key")));
  EXPECT_THAT(bad(one + other + one + tar_end(), 2),
              ElementsAre(at("a: another sample of the shard has the same key")));
  EXPECT_THAT(
      bad(member("a.jpg", "x") + member("a.png", "y") + member("a.cls", "1") + other + tar_end(),
          1),
      ElementsAre(at("a: has two images, a.jpg and a.png")));
  EXPECT_THAT(
      bad(member("a.cls", "1") + member("a.cls", "1") + member("a.jpg", "x") + other + tar_end(),
          1),
      ElementsAre(at("a: has two labels")));
}

// The complete samples before the end remain, and there is exactly one bad record.
TEST_F(WebDatasetTest, TruncatedAnywhere) {
  const std::string whole = shard(0, 3);
  const size_t one = (whole.size() - 1024) / 3;
  config.set_on_bad_record(DataConfig::SKIP);
  config.mutable_webdataset()->set_index_folder("/proc/none");  // in memory, for speed
  for (size_t length = 512; length < whole.size() - 1024 + 1; length += 13) {
    folder.write("t-0.tar", whole.substr(0, length));
    const auto good = static_cast<int64_t>((length + 511) / one);  // padding may be missing
    if (good == 0) {
      EXPECT_SAYS(message<DataError>([&] { open(); }), "has no good records, only 1 bad ones; ");
      continue;
    }
    const auto records = open();
    ASSERT_LE(records->size(), good) << length;
    ASSERT_GE(records->size(), static_cast<int64_t>(length / one)) << length;
    ASSERT_EQ(records->bad_records().count, 1) << length;
    for (int i = 0; i < records->size(); ++i) ASSERT_EQ(read(*records, i), image(i)) << length;
  }
}

TEST_F(WebDatasetTest, ErrorsDescribeTheTruncation) {
  const std::string whole = shard(0, 3);
  const size_t one = (whole.size() - 1024) / 3;
  // In the second one's image, between the third one's image and label, before the end.
  EXPECT_THAT(bad(whole.substr(0, one + 512 + 100), 1),
              ElementsAre(at(fmt::format("000001: is truncated within 000001.jpg: its 137 bytes "
                                         "begin at {}, but the shard ends at {}",
                                         one + 512, one + 612))));
  EXPECT_THAT(bad(whole.substr(0, 2 * one + 1024), 2),
              ElementsAre(at(fmt::format("000002: is truncated: it ends at byte {} without an "
                                         "end-of-archive marker",
                                         2 * one + 1024))));
  EXPECT_THAT(bad(whole.substr(0, 3 * one), 3),
              ElementsAre(at(fmt::format("is truncated: it ends at byte {} without an "
                                         "end-of-archive marker",
                                         3 * one))));
}

TEST_F(WebDatasetTest, DamagedInTheMiddle) {
  std::string bytes = shard(0, 3);
  const size_t one = (bytes.size() - 1024) / 3;
  bytes[one + 5] = '?';  // in a name, so that the checksum of its header does not match
  const auto found = bad(bytes, 1);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_SAYS(found[0], at(fmt::format("is damaged or truncated at byte {}: ", one)));
}

TEST_F(WebDatasetTest, ConcatenatedArchives) {
  const std::string bytes = shard(0, 3);
  EXPECT_THAT(bad(bytes + shard(3, 3), 3),
              ElementsAre(at(fmt::format("has data after the end of its archive, at byte {}; is it "
                                         "a concatenation of several archives?",
                                         bytes.size()))));
}

TEST_F(WebDatasetTest, CountsAllBadRecords) {
  std::string bytes = sample_members("good", "x", "1");
  for (int i = 0; i < 50; ++i) bytes += member(fmt::format("{}.jpg", i), "x");
  config.set_on_bad_record(DataConfig::SKIP);
  EXPECT_EQ(open(bytes + tar_end())->bad_records().count, 50);
  EXPECT_EQ(open()->bad_records().count, 50);  // from the index
  EXPECT_EQ(open()->bad_records().first.size(), 5u);
}

TEST_F(WebDatasetTest, FilesThatAreNotTarFiles) {
  config.set_on_bad_record(DataConfig::SKIP);  // does not apply to files of another format
  EXPECT_SAYS(data_error(testing::gzip(shard(0, 3))),
              at("is compressed (gzip), but random access to samples needs a plain tar file; "
                 "decompress it"));
  EXPECT_SAYS(data_error("\x28\xb5\x2f\xfd and so on"), at("is compressed (zstd)"));
  EXPECT_SAYS(data_error(std::string("\xfd\x37zXZ\0", 6)), at("is compressed (xz)"));
  EXPECT_SAYS(data_error(""), at("cannot be read as a tar file: "));
  EXPECT_SAYS(data_error(std::string(5000, 'x')), at("cannot be read as a tar file: "));
  fs::remove(folder.path("t-0.tar"));
  fs::create_directory(folder.path("t-0.tar"));
  EXPECT_EQ(message<DataError>([&] { open(); }), at("is a folder"));
  fs::remove(folder.path("t-0.tar"));
  fs::create_symlink("nowhere", folder.path("t-0.tar"));
  EXPECT_SAYS(message<DataError>([&] { open(); }), "t-0.tar: ");
  EXPECT_SAYS(data_error(shard(0, 3)), "no exception");
}

TEST_F(WebDatasetTest, NoSamples) {
  EXPECT_SAYS(data_error(tar_end()), "(1 shard): has no records");
  config.mutable_webdataset()->clear_train();
  EXPECT_SAYS(message<ConfigError>([&] { open(); }), "data.webdataset.train: is empty");
}

TEST_F(WebDatasetTest, IndexesAreBuiltOnce) {
  folder.write("t-0.tar", shard(0, 3));
  folder.write("t-1.tar", shard(3, 3));
  open();
  // If both shards start at once, only the last one is reported.
  EXPECT_THAT(messages, ::testing::Contains(
                            ::testing::AnyOf("indexing shard 1 of 2", "indexing shard 2 of 2")));
  EXPECT_TRUE(fs::exists(folder.path("t-0.tar.index")));
  EXPECT_FALSE(fs::exists(folder.path("t-0.tar.index.lock")));
  messages.clear();
  EXPECT_EQ(open()->size(), 6);
  EXPECT_THAT(messages, IsEmpty());
}

TEST_F(WebDatasetTest, AChangedShardIsIndexedAgain) {
  const auto first = open(shard(0, 3));
  const uint64_t identity = first->identity();
  EXPECT_EQ(open()->identity(), identity);
  // A shard of another size, then one of the same size with another, older modification time.
  EXPECT_EQ(open(shard(0, 4))->size(), 4);
  const auto time = fs::last_write_time(folder.path("t-0.tar"));
  folder.write("t-0.tar", shard(5, 4));
  fs::last_write_time(folder.path("t-0.tar"), time - std::chrono::hours(1));
  messages.clear();
  const auto last = open();
  EXPECT_THAT(messages, ElementsAre("indexing shard 1 of 1"));
  EXPECT_EQ(last->label(0), 5);
  EXPECT_EQ(read(*last, 0), image(5));
  EXPECT_NE(last->identity(), identity);
  // One of the same size and modification time in its place.
  const auto modified = fs::last_write_time(folder.path("t-0.tar"));
  folder.write("other.tar", shard(7, 4));
  fs::last_write_time(folder.path("other.tar"), modified);
  fs::rename(folder.path("other.tar"), folder.path("t-0.tar"));
  EXPECT_EQ(open()->label(0), 7);
}

TEST_F(WebDatasetTest, AnotherLabelSourceIsIndexedAgain) {
  folder.write("t-0.tar", member("a.jpg", "x") + member("a.cls", "1") +
                              member("a.json", R"({"label":2})") + tar_end());
  EXPECT_EQ(open()->label(0), 1);
  config.mutable_webdataset()->set_json_label("label");
  EXPECT_EQ(open()->label(0), 2);
}

// The checksum covers every byte of an index, and the header its length.
TEST_F(WebDatasetTest, ADamagedIndexIsBuiltAgain) {
  folder.write("t-0.tar", shard(0, 3));
  open();
  std::string index(fs::file_size(folder.path("t-0.tar.index")), '\0');
  std::ifstream(folder.path("t-0.tar.index"), std::ios::binary)
      .read(index.data(), static_cast<std::streamsize>(index.size()));
  const auto rebuilt = [&](const std::string& bytes) {
    folder.write("t-0.tar.index", bytes);
    messages.clear();
    EXPECT_EQ(open()->size(), 3);
    return !messages.empty();
  };
  EXPECT_FALSE(rebuilt(index));
  for (size_t i = 0; i < index.size(); ++i) {
    std::string bytes = index;
    bytes[i] ^= 1;
    ASSERT_TRUE(rebuilt(bytes)) << i;
  }
  for (size_t length = 0; length < index.size(); ++length) {
    ASSERT_TRUE(rebuilt(index.substr(0, length))) << length;
  }
  EXPECT_TRUE(rebuilt(index + "x"));
}

TEST_F(WebDatasetTest, SavesIndexesInTheIndexFolder) {
  folder.write("a/t.tar", shard(0, 2));
  folder.write("b/t.tar", shard(2, 3));
  config.mutable_webdataset()->set_train(0, "{a,b}/t.tar");
  config.mutable_webdataset()->set_index_folder(folder.path("indexes/deep"));
  EXPECT_EQ(open()->size(), 5);
  EXPECT_FALSE(fs::exists(folder.path("a/t.tar.index")));
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path("indexes/deep"))) {
    names.insert(entry.path().filename().string());
  }
  EXPECT_EQ(names.size(), 2u);  // although both shards have the same file name
  messages.clear();
  EXPECT_EQ(open()->size(), 5);
  EXPECT_THAT(messages, IsEmpty());
}

TEST_F(WebDatasetTest, SavesIndexesInTheCacheIfTheFolderIsNotWritable) {
  folder.write("t-0.tar", shard(0, 3));
  fs::create_directories(folder.path("t-0.tar.index.lock/x"));  // prevents writing, even for root
  const std::string cache = folder.path("cache");
  const char* was = std::getenv("XDG_CACHE_HOME");
  const std::string before = was ? was : "";
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  EXPECT_EQ(open()->size(), 3);
  messages.clear();
  EXPECT_EQ(open()->size(), 3);
  EXPECT_THAT(messages, IsEmpty());
  EXPECT_FALSE(fs::is_empty(cache + "/trireme"));
  was ? setenv("XDG_CACHE_HOME", before.c_str(), 1) : unsetenv("XDG_CACHE_HOME");
}

TEST_F(WebDatasetTest, UsesIndexesInMemoryIfNoFileCanBeWritten) {
  config.mutable_webdataset()->set_index_folder("/proc/none");
  const auto records = open(shard(0, 3));
  EXPECT_EQ(records->size(), 3);
  EXPECT_EQ(read(*records, 2), image(2));
  EXPECT_EQ(open()->size(), 3);
  EXPECT_EQ(messages.size(), 2u);
}

// The second attempt to open the lock fails, after another process has removed the first one.
TEST_F(WebDatasetTest, SavesIndexesInTheCacheIfALockCannotBeOpenedAgain) {
  folder.write("t-0.tar", shard(0, 3));
  const std::string path = folder.path("t-0.tar"), cache = folder.path("cache");
  const char* was = std::getenv("XDG_CACHE_HOME");
  const std::string before = was ? was : "";
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  const int lock = ::open((path + ".index.lock").c_str(), O_RDWR | O_CREAT, 0666);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  std::jthread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    fs::remove(path + ".index.lock");
    fs::create_directory(path + ".index.lock");
    close(lock);
  });
  const auto index = TarIndexFiles("", {}).make(path, TarIndexFiles::WhenBusy::kWait);
  ASSERT_TRUE(index);
  EXPECT_EQ(index->samples().size(), 3u);
  EXPECT_TRUE(fs::exists(cache + "/trireme") && !fs::is_empty(cache + "/trireme"));
  was ? setenv("XDG_CACHE_HOME", before.c_str(), 1) : unsetenv("XDG_CACHE_HOME");
}

TEST_F(WebDatasetTest, WaitsForAnIndexThatAnotherProcessBuilds) {
  folder.write("t-0.tar", shard(0, 3));
  const std::string path = folder.path("t-0.tar");
  const TarIndexFiles files("", {});
  const int draft = ::open((path + ".index.lock").c_str(), O_RDWR | O_CREAT, 0666);
  ASSERT_EQ(flock(draft, LOCK_EX), 0);
  EXPECT_FALSE(files.make(path, TarIndexFiles::WhenBusy::kSkip));
  std::jthread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_FALSE(fs::exists(path + ".index"));
    close(draft);  // as if the other process was killed before it wrote anything
  });
  const auto index = files.make(path, TarIndexFiles::WhenBusy::kWait);
  ASSERT_TRUE(index);
  EXPECT_EQ(index->samples().size(), 3u);
  EXPECT_TRUE(fs::exists(path + ".index"));
  EXPECT_FALSE(fs::exists(path + ".index.lock"));
}

TEST_F(WebDatasetTest, ConcurrentReadersSeeCompleteIndexes) {
  for (int i = 0; i < 20; ++i) folder.write(fmt::format("t-{:02}.tar", i), shard(i * 100, 100));
  std::mutex mutex;
  options.progress = {};
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      ranks.emplace_back([&] {
        const auto records = open();
        const std::lock_guard lock(mutex);
        EXPECT_EQ(records->size(), 2000);
        EXPECT_EQ(read(*records, 1999), image(1999));
      });
    }
  }
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
    EXPECT_NE(entry.path().extension(), ".lock") << entry.path();
  }
}

TEST_F(WebDatasetTest, ErrorsNameARemovedShard) {
  folder.write("t-0.tar", shard(0, 3));
  folder.write("t-1.tar", shard(3, 3));
  const auto records = open();
  EXPECT_EQ(read(*records, 0), image(0));
  fs::remove(folder.path("t-0.tar"));
  fs::remove(folder.path("t-1.tar"));
  EXPECT_EQ(read(*records, 1), image(1));  // the shard is still open
  EXPECT_EQ(message<DataError>([&] { read(*records, 4); }),
            folder.path("t-1.tar") + ": cannot be opened: No such file or directory");
}

TEST_F(WebDatasetTest, ErrorsNameAChangedShard) {
  folder.write("t-0.tar", shard(0, 3));
  folder.write("t-1.tar", shard(3, 3));
  const auto records = open();
  EXPECT_EQ(read(*records, 0), image(0));
  fs::resize_file(folder.path("t-0.tar"), 600);
  EXPECT_SAYS(message<DataError>([&] { read(*records, 2); }),
              at("000002.jpg: the file ends within this record, at byte "));
  folder.write("t-1.tar", shard(3, 4));
  EXPECT_EQ(
      message<DataError>([&] { read(*records, 4); }),
      folder.path("t-1.tar") + ": has changed since it was indexed; restart to index it again");
}

TEST_F(WebDatasetTest, ReadsMoreShardsThanFilesCanBeOpen) {
  constexpr int kShards = 200;
  for (int i = 0; i < kShards; ++i) folder.write(fmt::format("t-{:03}.tar", i), shard(i, 1));
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{64, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto records = open();
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&] {
        for (int i = 0; i < 3 * kShards; ++i) {
          EXPECT_EQ(read(*records, i * 7 % kShards), image(i * 7 % kShards));
        }
      });
    }
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(WebDatasetTest, ClassNames) {
  folder.write("t-0.tar", shard(0, 3));
  folder.write("classes.txt", "cat\r\ndog\nbird of prey");
  config.mutable_webdataset()->set_class_names("classes.txt");
  EXPECT_THAT(open()->class_names(), ElementsAre("cat", "dog", "bird of prey"));
  folder.write("classes.txt", "cat\ndog\n");
  EXPECT_EQ(message<DataError>([&] { open(); }),
            folder.path("classes.txt") + ": lists 2 class names, but there are 3 classes");
}

}  // namespace
}  // namespace trireme::data
