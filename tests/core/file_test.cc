#include "core/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/interrupted.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class FileTest : public ::testing::Test {
 protected:
  FileTest() {
    std::string name = ::testing::TempDir() + "/trireme-file-XXXXXX";
    if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder " + name);
    folder_ = name;
  }
  ~FileTest() override { fs::remove_all(folder_); }

  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder_)) all.insert(entry.path().filename());
    return all;
  }

  fs::path folder_;
};

TEST_F(FileTest, NewFileReplacesTheOldOneWhenFinished) {
  const fs::path path = folder_ / "x";
  replace_durably(path, "old");
  {
    NewFile file(path);
    file.write("new");
    EXPECT_EQ(read_text(path), "old");
    EXPECT_TRUE(fs::exists(folder_ / "x.trireme-1.tmp"));
    file.write("er");
    file.finish();
    EXPECT_EQ(read_text(path), "newer");
  }
  EXPECT_FALSE(fs::exists(folder_ / "x.trireme-1.tmp"));
}

TEST_F(FileTest, UnfinishedFileIsRemoved) {
  const fs::path path = folder_ / "x";
  replace_durably(path, "old");
  NewFile(path).write("new");
  EXPECT_EQ(read_text(path), "old");
  EXPECT_FALSE(fs::exists(folder_ / "x.trireme-1.tmp"));
}

TEST_F(FileTest, FailuresNameFileAndCause) {
  EXPECT_THAT([&] { replace_durably(folder_ / "no/x", ""); },
              ThrowsMessage<Error>(HasSubstr("/no/x: cannot be created: No such file")));
  fs::create_directory(folder_ / "full");
  EXPECT_THAT([&] { replace_durably(folder_ / "full", "x"); },
              ThrowsMessage<Error>(HasSubstr("/full: cannot be created: Is a directory")));
  EXPECT_THAT([&] { read_text(folder_ / "none"); },
              ThrowsMessage<DataError>(HasSubstr("/none: cannot be read: No such file")));
  EXPECT_THAT([&] { read_text(folder_); },
              ThrowsMessage<DataError>(HasSubstr("is not a regular file")));
}

TEST_F(FileTest, NamesAFileLargerThanMemory) {
  replace_durably(folder_ / "large", "");
  std::error_code error;
  fs::resize_file(folder_ / "large", uintmax_t{1} << 43, error);  // sparse
  if (error) GTEST_SKIP() << "the file system has no files of 8 TiB";
  EXPECT_THAT([&] { read_text(folder_ / "large"); },
              ThrowsMessage<DataError>(
                  AllOf(HasSubstr("/large: has 8.0 TiB, but "), HasSubstr(" of memory"))));
}

// As root, `trireme report -o /dev/null` replaced it by a file for all programs. The paths do not
// exist, so that the test could not do that.
TEST_F(FileTest, DevicesAreNotReplaced) {
  for (const char* path : {"/dev/trireme-test", "/dev/./trireme-test"}) {
    EXPECT_THAT([&] { NewFile file(path); },
                ThrowsMessage<Error>(HasSubstr("is a device, which a file would replace")));
    EXPECT_FALSE(fs::exists("/dev/trireme-test.trireme-1.tmp"));
  }
  fs::create_symlink("/dev/null", folder_ / "null");
  EXPECT_THAT([&] { NewFile file(folder_ / "null"); },
              ThrowsMessage<Error>(HasSubstr("null: is a")));
}

TEST_F(FileTest, DoesNotFollowLinksAndPipesInPlaceOfTheTemporaryFile) {
  const fs::path path = folder_ / "x";
  const fs::path other = folder_ / "other";
  replace_durably(other, "of another");
  fs::create_symlink(other, folder_ / "x.trireme-1.tmp");
  replace_durably(path, "new");
  EXPECT_EQ(read_text(other), "of another");
  EXPECT_EQ(read_text(path), "new");
  EXPECT_FALSE(fs::is_symlink(path));
  ASSERT_EQ(mkfifo((folder_ / "x.trireme-2.tmp").c_str(), 0600), 0);
  replace_durably(path, "newer");
  EXPECT_EQ(read_text(path), "newer");
}

// Both wrote to PATH.tmp, and the file that remained was a mixture.
TEST_F(FileTest, TwoWritersOfOnePathEachWriteAWholeFile) {
  const fs::path path = folder_ / "x";
  NewFile one(path), two(path);
  one.write("1");
  two.write("22");
  one.write("1");
  two.finish();
  EXPECT_EQ(read_text(path), "22");
  one.finish();
  EXPECT_EQ(read_text(path), "11");
  EXPECT_EQ(names(), std::set<std::string>{"x"});
}

TEST_F(FileTest, ManyWritersOfOnePathLeaveOneWholeFile) {
  const fs::path path = folder_ / "x";
  {
    std::vector<std::jthread> writers;
    for (int i = 0; i < 4; ++i) {
      writers.emplace_back([&, i] {
        for (int k = 0; k < 20; ++k) replace_durably(path, std::string(10000, 'a' + i));
      });
    }
  }
  const std::string text = read_text(path);
  EXPECT_EQ(text, std::string(10000, text[0]));
  EXPECT_EQ(names(), std::set<std::string>{"x"});
}

TEST_F(FileTest, TheFileOfAKilledWriterIsRemovedByTheNextOne) {
  const fs::path path = folder_ / "x";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    NewFile first(path), second(path);
    first.write("half");
    raise(SIGKILL);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(names(), (std::set<std::string>{"x.trireme-1.tmp", "x.trireme-2.tmp"}));
  {
    NewFile one(path), two(path);
    one.finish();
    two.finish();
  }
  EXPECT_EQ(names(), std::set<std::string>{"x"});
}

TEST_F(FileTest, TheNewFileHasThePermissionsOfTheOldOne) {
  const fs::path path = folder_ / "x";
  replace_durably(path, "old");
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  replace_durably(path, "new");
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(FileTest, TheLongestNamesCanBeWritten) {
  replace_durably(folder_ / std::string(255, 'x'), "text");
  EXPECT_EQ(names(), std::set<std::string>{std::string(255, 'x')});
}

TEST_F(FileTest, RemovesOnlyTheGivenFilesOfAFolder) {
  constexpr std::array files = {"a", "b"};
  const auto remove = [&] { return remove_folder(open_own_folder(folder_), "x", files); };
  EXPECT_TRUE(remove()) << "it does not exist";
  fs::create_directories(folder_ / "x");
  replace_durably(folder_ / "x/a", "");
  replace_durably(folder_ / "x/c", "");
  EXPECT_FALSE(remove());
  EXPECT_FALSE(fs::exists(folder_ / "x/a"));
  EXPECT_TRUE(fs::exists(folder_ / "x/c"));
  fs::rename(folder_ / "x/c", folder_ / "c");
  fs::create_symlink(folder_ / "c", folder_ / "x/b");
  EXPECT_TRUE(remove());
  EXPECT_FALSE(fs::exists(folder_ / "x"));
  EXPECT_TRUE(fs::exists(folder_ / "c"));

  fs::create_directories(folder_ / "other");
  replace_durably(folder_ / "other/a", "");
  fs::create_directory_symlink(folder_ / "other", folder_ / "x");
  EXPECT_THAT([&] { open_own_folder(folder_ / "x"); },
              ThrowsMessage<Error>(HasSubstr("/x: is a symbolic link")));
  EXPECT_TRUE(remove());
  EXPECT_FALSE(fs::is_symlink(folder_ / "x"));
  EXPECT_TRUE(fs::exists(folder_ / "other/a"));
}

TEST_F(FileTest, ReadsAndDigestsFilesOfAnyLength) {
  for (const size_t length : {0, 1, 4095, 4096, (1 << 20) + 1, (9 << 20) + 5}) {
    std::string text(length, 'x');
    for (size_t i = 0; i < length; ++i) text[i] = static_cast<char>(i * 7 + i / 251);
    DurableFile file(folder_ / "x");
    file.write(text);
    file.finish();
    EXPECT_EQ(read_text(folder_ / "x"), text);
    EXPECT_EQ(digest_of(folder_ / "x"), file.digest());
    EXPECT_EQ(file.digest().bytes, length);
  }
}

TEST(WriteAll, ReturnsFalseOnFailure) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const Descriptor in(ends[0]), out(ends[1]);
  EXPECT_TRUE(write_all(out.number(), "text"));
  std::array<char, 8> got{};
  EXPECT_EQ(read(in.number(), got.data(), got.size()), 4);
  EXPECT_STREQ(got.data(), "text");
  EXPECT_FALSE(write_all(in.number(), "text"));
  EXPECT_EQ(errno, EBADF);
  EXPECT_TRUE(write_all(in.number(), ""));
}

TEST(RetryInterrupted, RetriesInterruptedCallsOnly) {
  int calls = 0;
  const auto call = [&](int times, int reason) {
    calls = 0;
    return retry_interrupted([&]() -> ssize_t {
      if (++calls > times) return 5;
      errno = reason;
      return -1;
    });
  };
  EXPECT_EQ(call(3, EINTR), 5);
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(call(3, EIO), -1);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace trireme
