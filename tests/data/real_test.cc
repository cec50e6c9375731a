// Real data sets: the digits included in the project, and others if they are available.
#include <gmock/gmock.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "tests/build_tree.h"
#include "tests/data/files.h"

namespace trireme::data {
namespace {

using testing::sample;

std::array<int, 10> count_labels(const Dataset& dataset) {
  std::array<int, 10> counts{};
  for (int64_t i = 0; i < dataset.size(); ++i)
    ++counts[static_cast<size_t>(sample(dataset, i).label())];
  return counts;
}

TEST(RealTest, Digits) {
  DataConfig config;
  const std::filesystem::path unpacked = testing::build_tree() / "data" / "digits";
  const bool bundled = std::filesystem::exists(unpacked / "digits.csv.gz");
  config.set_root(bundled ? unpacked.string() : TRIREME_SOURCE "/data/digits");
  google::protobuf::TextFormat::MergeFromString(
      "csv { train_file: 'digits.csv' shape: [1, 8, 8] scale: 0.0625 }", &config);
  const auto dataset = open_dataset(config, Part::kTraining);
  EXPECT_EQ(dataset->size(), 1797);
  EXPECT_EQ(dataset->spec().input, (TensorSpec{DType::kF32, Shape{1, 8, 8}, {}}));
  EXPECT_EQ(dataset->spec().classes, 10);
  EXPECT_EQ(count_labels(*dataset),
            (std::array<int, 10>{178, 182, 177, 183, 181, 182, 181, 179, 174, 180}));
  config.set_holdout(0.2);
  EXPECT_EQ(open_dataset(config, Part::kTraining)->size(), 1438);
  EXPECT_EQ(open_dataset(config, Part::kEvaluation)->size(), 359);
}

std::string optional_data() {
  if (const char* folder = std::getenv("TRIREME_DATA")) return folder;
  return TRIREME_SOURCE "/../shared/data";
}

TEST(RealTest, Mnist) {
  const std::string folder = optional_data() + "/mnist";
  if (!std::filesystem::is_directory(folder)) {
    GTEST_SKIP() << "no " << folder << "; TRIREME_DATA names the folder that holds mnist/";
  }
  DataConfig config;
  config.set_root(folder);
  config.mutable_idx();
  const auto training = open_dataset(config, Part::kTraining);
  EXPECT_EQ(training->size(), 60000);
  EXPECT_EQ(training->spec().input,
            (TensorSpec{DType::kU8, Shape{1, 28, 28}, Layout::channels_last()}));
  EXPECT_EQ(count_labels(*training),
            (std::array<int, 10>{5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949}));
  const auto evaluation = open_dataset(config, Part::kEvaluation);
  EXPECT_EQ(evaluation->size(), 10000);
  EXPECT_EQ(count_labels(*evaluation),
            (std::array<int, 10>{980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009}));
  EXPECT_NO_THROW(check_compatible(*training, *evaluation));
}

TEST(RealTest, Shakespeare) {
  const std::string folder = optional_data() + "/shakespeare";
  if (!std::filesystem::is_directory(folder)) {
    GTEST_SKIP() << "no " << folder << "; TRIREME_DATA names the folder that holds shakespeare/";
  }
  DataConfig config;
  config.set_root(folder);
  config.set_holdout(0.1);
  config.mutable_text()->set_train_file("input.txt");
  const auto training = open_dataset(config, Part::kTraining);
  const auto evaluation = open_dataset(config, Part::kEvaluation);
  EXPECT_EQ(training->spec().classes, 65);
  EXPECT_EQ(training->size(), 3921);
  EXPECT_EQ(evaluation->size(), 436);  // the last one is padded
  EXPECT_NO_THROW(check_compatible(*training, *evaluation));
  std::string beginning;
  for (const int32_t token : testing::values<int32_t>(sample(*training, 0).input)) {
    beginning += training->class_names().at(static_cast<size_t>(token));
  }
  EXPECT_EQ(beginning.substr(0, 30), "First Citizen:\\nBefore we proc");
}

// Into a folder of its own, as the data's may be of others.
DataConfig shards(const std::string& root, const std::string& files,
                  const testing::Folder& folder) {
  DataConfig config;
  config.set_root(root);
  config.mutable_webdataset()->add_train(files);
  config.mutable_webdataset()->set_index_folder(folder.path("indexes"));
  config.mutable_webdataset()->set_class_names("classes.txt");
  return config;
}

TEST(RealTest, Cifar10InShards) {
  const std::string root = optional_data() + "/cifar10";
  if (!std::filesystem::is_directory(root)) {
    GTEST_SKIP() << "no " << root << "; TRIREME_DATA names the folder that holds cifar10/";
  }
  const testing::Folder folder;
  const DataConfig config = shards(root, "cifar10-train-{000000..000004}.tar", folder);
  const auto training = open_dataset(config, Part::kTraining);
  EXPECT_EQ(training->size(), 50000);
  EXPECT_EQ(training->spec().input,
            (TensorSpec{DType::kU8, Shape{3, 32, 32}, Layout::channels_last()}));
  EXPECT_EQ(training->spec().classes, 10);
  EXPECT_EQ(training->class_names()[3], "cat");
  std::array<int, 10> equal;
  equal.fill(5000);
  EXPECT_EQ(count_labels(*training), equal);
  const auto test = open_dataset(shards(root, "cifar10-test-000000.tar", folder), Part::kTraining);
  EXPECT_EQ(test->size(), 10000);
  equal.fill(1000);
  EXPECT_EQ(count_labels(*test), equal);
}

TEST(RealTest, PhotographsInShards) {
  const std::string root = optional_data() + "/imagenet-sample";
  if (!std::filesystem::is_directory(root)) {
    GTEST_SKIP() << "no " << root << "; TRIREME_DATA names the folder that holds imagenet-sample/";
  }
  const testing::Folder folder;
  DataConfig config = shards(root, "imagenet-sample-*.tar", folder);
  google::protobuf::TextFormat::MergeFromString("transform { random_resized_crop { size: 64 } }",
                                                &config);
  const auto photographs = open_dataset(config, Part::kTraining);
  EXPECT_EQ(photographs->size(), 250);
  EXPECT_EQ(photographs->class_names().size(), 1000u);
  EXPECT_EQ(photographs->spec().classes, 997);
  for (int64_t i = 0; i < 250; ++i) EXPECT_EQ(sample(*photographs, i).label(), 4 * i);
}

}  // namespace
}  // namespace trireme::data
