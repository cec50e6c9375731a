#include "data/cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <thread>

#include "tests/data/exif.h"
#include "tests/data/images.h"

namespace trireme::data {
namespace {

using testing::FakeRecords;
using testing::fakes;
using testing::Folder;
using testing::image_of;
using testing::images;
using testing::message;
using testing::noisy;
using testing::TestImage;

constexpr int kCount = 20;
constexpr ImageSize kSize{9, 11};
constexpr const char* kAugmented =
    "transform { center_crop { size: [9, 10] } } transform { random_crop { size: 8 } } transform { "
    "horizontal_flip {} } ";

std::unique_ptr<FakeRecords> records() {
  std::vector<TestImage> originals;
  for (uint32_t i = 0; i < kCount; ++i) originals.push_back(noisy(kSize, 3, i));
  return fakes(originals);
}

std::string in_memory(int64_t bytes) {
  return "cache { memory_bytes: " + std::to_string(bytes) + " } ";
}
std::string in_file(const std::string& path) { return "cache { file: '" + path + "' } "; }

// Expects all samples of some epochs to equal those of the same files without a cache.
void expect_all(const Dataset& dataset, const std::string& transforms, int64_t first = 0) {
  const auto plain = images(records(), transforms);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    for (int64_t k = 0; k < kCount; ++k) {
      const SampleId id{(first + k * 7) % kCount, epoch};
      ASSERT_EQ(image_of(dataset, id), image_of(*plain, id)) << id.index << " of " << epoch;
    }
  }
}

TEST(MemoryCacheTest, DecodesEachImageOnce) {
  for (const char* transforms : {kAugmented, "", "transform { center_crop { size: 4 } } "}) {
    auto source = records();
    const FakeRecords& counted = *source;
    const auto dataset = images(std::move(source), transforms + in_memory(1 << 20));
    const int64_t before = counted.reads;
    expect_all(*dataset, transforms);
    EXPECT_EQ(counted.reads - before, kCount);
  }
}

TEST(MemoryCacheTest, CachesAsManyImagesAsFit) {
  constexpr int64_t kEach = 320 + 64;  // 9 * 11 * 3 rounded up to 64, and the entry's header
  auto source = records();
  const FakeRecords& counted = *source;
  const auto dataset = images(std::move(source), in_memory(kCount * 8 + 5 * kEach + kEach / 2));
  expect_all(*dataset, "");
  EXPECT_EQ(counted.reads - 1, 5 + 3 * (kCount - 5)) << "the first is opened for its size";
}

TEST(MemoryCacheTest, StoresImagesOfAllSizes) {
  const auto cache = make_memory_cache(3, 1 << 20);
  EXPECT_FALSE(cache->find(1).has_value());
  TestImage a = noisy({3, 4}, 3);
  TestImage b = noisy({5, 1}, 1);
  cache->put(1, a.view());
  cache->put(2, b.view());
  cache->put(1, a.view());
  EXPECT_EQ(TestImage(cache->find(1).value()), a);
  EXPECT_EQ(TestImage(cache->find(2).value()), b);
  EXPECT_FALSE(cache->find(0).has_value());
}

// The orientation of photographs is applied before they are cached, and only then.
TEST(CacheTest, HoldsUprightImages) {
  const Folder folder;
  const auto photographs = [] {
    auto source = std::make_unique<FakeRecords>();
    for (int i = 1; i <= 8; ++i) {
      TestImage image = noisy({7, 9}, 3, static_cast<uint32_t>(i));
      source->files.push_back(testing::with_orientation(encode_png(image.view()), i));
    }
    return source;
  };
  const std::string crop =
      "transform { center_crop { size: 5 } } transform { horizontal_flip {} } ";
  const std::string file = in_file(folder.path("cache"));
  const auto plain = images(photographs(), crop);
  for (const std::string& cache : {in_memory(1 << 20), file, file}) {
    const auto cached = images(photographs(), crop + cache);
    for (const SampleId id : {SampleId{0, 0}, {4, 0}, {5, 0}, {7, 0}, {4, 1}, {7, 1}}) {
      EXPECT_EQ(image_of(*cached, id), image_of(*plain, id)) << id.index;
    }
  }
  const std::string stored = "decode { apply_exif_orientation: false } ";
  EXPECT_SAYS(message<DataError>([&] { images(photographs(), crop + file + stored); }),
              "or other data.decode settings");
}

TEST(CacheConfigTest, ErrorsNameTheField) {
  const auto error = [](const std::string& text) {
    return message<ConfigError>([&] { images(records(), text); });
  };
  EXPECT_SAYS(error(in_memory(-1)), "data.cache.memory_bytes: -1 is less than 0");
  EXPECT_SAYS(
      error(in_memory(int64_t{1} << 60)),
      "data.cache.memory_bytes: cannot reserve 1152921504606846976 bytes: Cannot allocate memory");
  EXPECT_SAYS(error("cache { memory_bytes: 1 file: 'x' }"),
              "data.cache: is either in memory or in a file, not both");
}

TEST(CacheFileTest, IsFilledOnceAndReusedByLaterRuns) {
  const Folder folder;
  for (const std::string transforms : {kAugmented, ""}) {
    const std::string text = transforms + in_file(folder.path(transforms.empty() ? "a" : "b"));
    auto source = records();
    const FakeRecords& counted = *source;
    const auto first = images(std::move(source), text);
    const int64_t opening = counted.reads;
    expect_all(*first, transforms);
    EXPECT_EQ(counted.reads - opening, kCount);
    auto later = records();
    const FakeRecords& unread = *later;
    const auto second = images(std::move(later), text);
    expect_all(*second, transforms, 5);
    EXPECT_EQ(unread.reads, opening);
  }
}

TEST(CacheFileTest, IsUnderTheRootWithOneFilePerPart) {
  const Folder folder;
  const std::string text = in_file("cache") + "root: '" + folder.path() + "' ";
  image_of(*images(records(), text), {0});
  image_of(*images(records(), text, Part::kEvaluation), {0});
  EXPECT_TRUE(std::filesystem::exists(folder.path("cache")));
  EXPECT_TRUE(std::filesystem::exists(folder.path("cache.eval")));
}

TEST(CacheFileTest, RequiresImagesOfOneSize) {
  const Folder folder;
  const auto dataset = images(fakes({noisy({8, 8}, 3), noisy({8, 9}, 3)}),
                              "transform { random_crop { size: 4 } } " + in_file(folder.path("x")));
  EXPECT_SAYS(message<DataError>([&] { image_of(*dataset, {1}); }),
              "fake: 1: is 8 x 9 (height x width) before the first random transform, others are 8 "
              "x 8; data.cache.file needs a resize or crop there");
}

// Creates a cache file with all images and returns its path.
std::string filled(const Folder& folder, const std::string& name = "cache") {
  expect_all(*images(records(), in_file(folder.path(name))), "");
  return folder.path(name);
}

void change(const std::string& path, int64_t at, const std::function<void(char&)>& change_byte) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  char byte = 0;
  file.seekg(at).read(&byte, 1);
  change_byte(byte);
  file.seekp(at).write(&byte, 1);
  ASSERT_TRUE(file.good());
}

constexpr int64_t kImagesOffset = 2 * 4096;  // after the header and the checksums
constexpr int64_t kStride = 320;             // 9 * 11 * 3 rounded up to 64

TEST(CacheFileTest, DecodesDamagedImagesAgain) {
  const Folder folder;
  const std::string path = filled(folder);
  change(path, kImagesOffset + 3 * kStride + 17, [](char& byte) { byte ^= 1; });
  change(path, kImagesOffset + 5 * kStride, [](char& byte) { byte ^= 64; });
  change(path, 4096 + 8 * 8, [](char& byte) { byte ^= 64; });  // the checksum of image 8
  for (const int64_t expected : {3, 0}) {
    auto source = records();
    const FakeRecords& counted = *source;
    const auto dataset = images(std::move(source), in_file(path));
    const int64_t opening = counted.reads;
    expect_all(*dataset, "");
    EXPECT_EQ(counted.reads - opening, expected) << "they are cached again";
  }
}

std::string open_error(const std::string& path, const std::string& transforms = "", uint64_t id = 1,
                       int count = kCount) {
  auto source = records();
  source->id = id;
  source->files.resize(static_cast<size_t>(count));
  return message<DataError>([&] { images(std::move(source), transforms + in_file(path)); });
}

TEST(CacheFileTest, RejectsFilesThatDoNotMatch) {
  const Folder folder;
  const std::string path = filled(folder);
  EXPECT_SAYS(open_error(path), "no exception");
  EXPECT_SAYS(open_error(path, "", 2),
              path +
                  ": was created from other files, or with other transforms or other data.decode "
                  "settings; remove it, or set data.cache.file to another path");
  EXPECT_SAYS(open_error(path, "transform { horizontal_flip { probability: 1 } } "),
              "other transforms");
  EXPECT_SAYS(open_error(path, "", 1, kCount - 1),
              "holds 20 images of 9 x 11 x 3, not 19 of 9 x 11 x 3 (height x width x channels)");
  EXPECT_SAYS(open_error(path, "transform { center_crop { size: 4 } } "), "not 20 of 4 x 4 x 3");
  EXPECT_SAYS(open_error(path, "decode { channels: 1 } "), "not 20 of 9 x 11 x 1");
  std::filesystem::resize_file(path, kImagesOffset + 100);
  EXPECT_SAYS(open_error(path), "is 8292 bytes long, not ");
  folder.write("other", "what somebody wrote");
  EXPECT_SAYS(open_error(folder.path("other")), "is not an image cache");
  folder.write("zeros", std::string(5000, '\0'));
  EXPECT_SAYS(open_error(folder.path("zeros")), "is not an image cache");
  EXPECT_SAYS(open_error(folder.path("no/such/folder")),
              "cannot be opened: No such file or directory");
  EXPECT_SAYS(open_error(folder.path()), "cannot be read: Is a directory");
}

TEST(CacheFileTest, RestartsAnInterruptedCreation) {
  const Folder folder;
  const std::string path = filled(folder);
  change(path, 12, [](char& byte) { byte = 0; });  // CacheHeader::ready
  std::filesystem::resize_file(path, kImagesOffset + 100);
  auto source = records();
  const FakeRecords& counted = *source;
  const auto dataset = images(std::move(source), in_file(path));
  expect_all(*dataset, "");
  EXPECT_EQ(counted.reads - 1, kCount);
  folder.write("empty", "");
  expect_all(*images(records(), in_file(folder.path("empty"))), "");
}

// Runs `work` in a process of its own, which exits with 0 if it succeeds.
pid_t start(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child != 0) return child;
  try {
    work();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    _exit(2);
  }
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

int ended(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(CacheFileTest, IsSharedByProcesses) {
  const Folder folder;
  const std::string path = folder.path("cache");
  std::vector<pid_t> children;
  for (int64_t first = 0; first < 3; ++first) {
    children.push_back(start([&] {
      expect_all(*images(records(), kAugmented + in_file(path)), kAugmented, first * 6);
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(ended(child), 0);
  auto source = records();
  const FakeRecords& counted = *source;
  const auto dataset = images(std::move(source), kAugmented + in_file(path));
  expect_all(*dataset, kAugmented);
  EXPECT_EQ(counted.reads, 0);
}

TEST(CacheFileTest, IsSharedByThreads) {
  const Folder folder;
  for (const std::string& cache : {in_file(folder.path("cache")), in_memory(1 << 20)}) {
    const auto dataset = images(records(), kAugmented + cache);
    std::vector<std::thread> threads;
    for (int64_t first = 0; first < 4; ++first) {
      threads.emplace_back([&, first] { expect_all(*dataset, kAugmented, first); });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(CacheFileTest, SurvivesAKilledProcess) {
  const Folder folder;
  const std::string path = folder.path("cache");
  for (int round = 0; round < 5; ++round) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = start([&] {
      const auto dataset = images(records(), in_file(path));
      for (int64_t i = 0;; ++i) {
        image_of(*dataset, {(round * 3 + i) % kCount});
        if (i == 2 && write(ready[1], "", 1) != 1) throw Error("cannot write to the pipe");
      }
    });
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    kill(child, SIGKILL);
    EXPECT_EQ(ended(child), 128 + SIGKILL);
    close(ready[0]);
    close(ready[1]);
    auto source = records();
    const FakeRecords& counted = *source;
    const auto dataset = images(std::move(source), in_file(path));
    for (int64_t k = 0; k < 3; ++k) image_of(*dataset, {round * 3 + k});
    EXPECT_EQ(counted.reads - 1, 0) << "images that were read are cached";
  }
  expect_all(*images(records(), in_file(path)), "");
}

TEST(CacheFileTest, DetectsAFullDiskWhenOpened) {
  const Folder folder;
  const std::string path = folder.path("cache");
  EXPECT_EQ(ended(start([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{6000, 6000};
              ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
              EXPECT_SAYS(open_error(path),
                          path +
                              ": there is no room for the 0.0 MiB of 20 images: File too "
                              "large");
            })),
            0);
  EXPECT_EQ(std::filesystem::file_size(path), 0) << "the space is released";
  expect_all(*images(records(), in_file(path)), "");
}

TEST(CacheFileTest, AReadOnlyFileWorksIfItIsComplete) {
  const Folder folder;
  const std::string complete = filled(folder, "complete");
  const std::string part = folder.path("part");
  image_of(*images(records(), in_file(part)), {4});
  std::filesystem::permissions(folder.path(), std::filesystem::perms{0555});
  for (const std::string& path : {complete, part}) {
    std::filesystem::permissions(path, std::filesystem::perms{0444});
  }
  EXPECT_EQ(ended(start([&] {
              ASSERT_TRUE(geteuid() != 0 || seteuid(65534) == 0);  // root may write all files
              auto source = records();
              const FakeRecords& counted = *source;
              const auto dataset = images(std::move(source), in_file(complete));
              expect_all(*dataset, "");
              EXPECT_EQ(counted.reads - 1, 0);
              EXPECT_SAYS(open_error(part),
                          part + ": is read-only, and 19 of its 20 images are missing");
              EXPECT_SAYS(open_error(folder.path("new")), "cannot be opened: Permission denied");
            })),
            0);
  std::filesystem::permissions(folder.path(), std::filesystem::perms{0755});
}

}  // namespace
}  // namespace trireme::data
