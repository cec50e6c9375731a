// Tar shards and class folders with the same images must contain bit-identical samples and, if
// their order is the same, produce bit-identical batches.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "core/device.h"
#include "data/formats/formats.h"
#include "data/loader.h"
#include "tests/data/images.h"
#include "tests/data/tars.h"

namespace trireme::data {
namespace {

using testing::Folder;
using testing::sample;
using testing::sample_members;

namespace fs = std::filesystem;

// Random transforms depend on the sample's index, so they only match if that is the same.
constexpr const char* kAugmented = R"(
transform { random_crop { size: 32 padding: 4 } }
transform { horizontal_flip {} }
)";

std::string key_of(const std::string& where) {
  const std::string name = where.substr(where.find_last_of("/ ") + 1);
  return name.substr(0, name.find('.'));
}

std::string text(const Records& records, int64_t index) {
  std::vector<uint8_t> bytes;
  records.read(index, bytes);
  return {bytes.begin(), bytes.end()};
}

// Writes the samples to train/CLASS/KEY.jpg. Class folders sort in the order of their labels.
void unpack(const Records& shards, const Folder& folder) {
  for (int64_t i = 0; i < shards.size(); ++i) {
    folder.write(fmt::format("train/{:03}/{}.jpg", shards.label(i), key_of(shards.where(i))),
                 text(shards, i));
  }
}

// Writes the samples, in their order, into `shards` shards.
void pack(const Records& files, const Folder& folder, int64_t shards) {
  for (int64_t shard = 0; shard < shards; ++shard) {
    std::string bytes;
    for (int64_t i = files.size() * shard / shards; i < files.size() * (shard + 1) / shards; ++i) {
      bytes +=
          sample_members(fmt::format("{:08}", i), text(files, i), std::to_string(files.label(i)));
    }
    folder.write(fmt::format("sorted-{:02}.tar", shard), bytes + testing::tar_end());
  }
}

void expect_same_samples(const DataConfig& shards, const DataConfig& files) {
  const auto a = open_dataset(shards, Part::kTraining);
  const auto b = open_dataset(files, Part::kTraining);
  ASSERT_EQ(a->size(), b->size());
  ASSERT_EQ(a->spec().input, b->spec().input);
  std::map<std::string, int64_t> index;
  for (int64_t i = 0; i < b->size(); ++i) index[key_of(b->where(i))] = i;
  for (int64_t i = 0; i < a->size(); ++i) {
    ASSERT_EQ(sample(*a, i), sample(*b, index.at(key_of(a->where(i))))) << a->where(i);
  }
}

void expect_same_batches(const DataConfig& shards, const DataConfig& files) {
  const OpenOptions options{.seed = 5, .progress = {}};
  const auto a = open_dataset(shards, Part::kTraining, options);
  const auto b = open_dataset(files, Part::kTraining, options);
  const auto device = create_cpu_device(1);
  LoaderOptions one;
  one.seed = 7;
  one.global_batch = one.capacity = 48;
  LoaderOptions other = one;
  other.threads = 2;
  Loader from_shards(*a, *device, one);
  Loader from_files(*b, *device, other);
  from_shards.start(3, 0);
  from_files.start(3, 0);
  const size_t bytes = a->spec().input.bytes();
  for (int64_t batch = 0; batch < from_shards.batches_per_epoch(); ++batch) {
    const Batch& x = from_shards.next();
    const Batch& y = from_files.next();
    ASSERT_EQ(x.rows, y.rows);
    ASSERT_EQ(std::memcmp(x.inputs, y.inputs, static_cast<size_t>(x.rows) * bytes), 0) << batch;
    ASSERT_EQ(std::memcmp(x.targets, y.targets, static_cast<size_t>(x.rows) * 4), 0) << batch;
  }
}

// Creates files in `folder`.
void expect_equal_formats(const DataConfig& shards, const Folder& folder) {
  unpack(*open_webdataset(shards, Part::kTraining, {}), folder);
  expect_same_samples(shards, folder.config("image_folder {}"));
  pack(*open_image_folder(folder.config("image_folder {}"), Part::kTraining, {}), folder, 7);
  expect_same_batches(
      folder.config(fmt::format("webdataset {{ train: 'sorted-*.tar' }}{}", kAugmented)),
      folder.config(fmt::format("image_folder {{}}{}", kAugmented)));
}

TEST(TarAndFolderTest, GeneratedImages) {
  constexpr int kCount = 200;
  const Folder folder;
  std::string bytes[2];
  for (int i = 0; i < kCount; ++i) {
    auto image = testing::smooth({32, 32}, 3, i);
    const auto jpeg = encode_jpeg(image.view(), 90);
    bytes[i % 3 == 0] +=
        sample_members(fmt::format("{:05}", i * 7919 % 1000), std::string(jpeg.begin(), jpeg.end()),
                       std::to_string(i * 5 % 7));
  }
  for (const int i : {0, 1}) {
    folder.write(fmt::format("t-{}.tar", i), bytes[i] + testing::tar_end());
  }
  expect_equal_formats(folder.config("webdataset { train: 't-{0..1}.tar' }"), folder);
}

TEST(TarAndFolderTest, Cifar10) {
  const char* other = std::getenv("TRIREME_DATA");
  const std::string root =
      (other ? other : TRIREME_SOURCE "/../shared/data") + std::string("/cifar10");
  if (!fs::is_directory(root)) {
    GTEST_SKIP() << "no " << root << "; set TRIREME_DATA to the folder that contains cifar10/";
  }
  const Folder folder;
  DataConfig shards = folder.config("webdataset { train: 'cifar10-train-00000{0..4}.tar' }");
  shards.mutable_webdataset()->set_index_folder(folder.path("indexes"));
  shards.set_root(root);
  expect_equal_formats(shards, folder);
}

}  // namespace
}  // namespace trireme::data
