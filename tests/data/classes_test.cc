// Class weights and balanced sampling.
#include "data/classes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "core/device.h"
#include "data/loader.h"
#include "tests/data/files.h"
#include "tests/data/images.h"
#include "tests/data/tars.h"

namespace trireme::data {
namespace {

using ::testing::ElementsAre;
using testing::Folder;

std::vector<int32_t> labels_read(const Dataset& dataset) {
  std::vector<int32_t> labels;
  std::vector<std::byte> input(dataset.spec().input.bytes());
  for (int64_t i = 0; i < dataset.size(); ++i) {
    int32_t label = -1;
    dataset.read({.index = i}, input.data(), reinterpret_cast<std::byte*>(&label));
    labels.push_back(label);
  }
  return labels;
}

// 1 of class 0, 3 of class 1, 8 of class 2.
constexpr const char* kTable = "1,0\n2,1\n3,2\n4,2\n5,2\n6,1\n7,2\n8,2\n9,2\n10,2\n11,1\n12,2\n";
constexpr const char* kTableConfig = R"(csv { train_file: "t.csv" eval_file: "t.csv" })";

std::unique_ptr<Dataset> open(const DataConfig& config) {
  return open_dataset(config, Part::kTraining, {.seed = 1});
}

std::unique_ptr<Dataset> table(const Folder& folder, const std::string& more = "") {
  folder.write("t.csv", kTable);
  return open(folder.config(kTableConfig + more));
}

TEST(ClassesTest, LabelsMatchTheSamples) {
  const Folder folder;
  folder.write("t.csv", kTable);
  const std::vector<uint8_t> file = encode_png(testing::noisy({8, 8}, 3).view());
  const std::string image(file.begin(), file.end());
  std::string tar;
  for (int i = 0; i < 7; ++i) {
    tar += testing::member(fmt::format("{}.png", i), image);
    tar += testing::member(fmt::format("{}.cls", i), std::to_string(i * i % 3));
    folder.write(fmt::format("train/{}/{}.png", i % 4 == 0 ? "b" : "a", i), image);
    folder.write("val/a/0.png", image);
  }
  folder.write("t.tar", tar + testing::tar_end());
  for (const char* text : {
           kTableConfig,
           R"(csv { train_file: "t.csv" } holdout: 0.25)",
           R"(synthetic { shape: 4 classes: 3 count: 11 })",
           R"(webdataset { train: "t.tar" eval: "t.tar" })",
           R"(webdataset { train: "t.tar" } holdout: 0.3 transform { horizontal_flip {} })",
           R"(image_folder {})",
       }) {
    const auto dataset = open(folder.config(text));
    EXPECT_EQ(labels_for(*dataset, "field"), labels_read(*dataset)) << text;
  }
  // Soft labels still have classes.
  const auto soft = table(folder, "mix { mixup_alpha: 1 }");
  EXPECT_EQ(soft->labels(), table(folder)->labels());
}

TEST(ClassesTest, BalancedWeightsMatchScikitLearn) {
  const Folder folder;
  // compute_class_weight("balanced", classes=[0, 1, 2], y)
  EXPECT_THAT(balanced_weights(*table(folder), "field"), ElementsAre(4, 12.F / 9, 0.5F));
}

TEST(ClassesTest, RejectsDataThatCannotBeBalanced) {
  const Folder folder;
  folder.write("t.csv", kTable);
  folder.write("corpus.txt", "to be or not to be");
  const auto refused = [&](const std::string& text) {
    return testing::message<ConfigError>(
        [&] { balanced_weights(*open(folder.config(text)), "a.field"); });
  };
  EXPECT_SAYS(refused(R"(csv { train_file: "t.csv" eval_file: "t.csv" classes: 5 })"),
              "a.field: class 3 has no training samples and so no balanced weight");
  EXPECT_SAYS(refused(R"(csv { train_file: "t.csv" eval_file: "t.csv" regression: true })"),
              "a.field: needs samples with class labels, not ");
  EXPECT_SAYS(
      refused(R"(text { train_file: "corpus.txt" length: 3 } holdout: 0.5)"),
      "a.field: needs samples with one label each that is known without reading them, not ");
  EXPECT_SAYS(refused("synthetic { shape: 4 count: 1000000000000 }"),
              "a.field: needs a list of all labels, which is limited to 268435456 samples: ");
}

// Classes without samples are never drawn.
TEST(BalancedDrawsTest, DrawsClassesAndTheirSamplesUniformly) {
  const std::vector<int32_t> labels = {2, 0, 2, 2, 4, 2, 2, 4, 2, 2};  // none of 1 and 3
  const BalancedDraws draws(labels, 5);
  constexpr int kDraws = 60000;
  std::vector<double> counts(labels.size());
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(draws(3, 1, i))];
  const std::map<int32_t, double> of_class = {{0, 1}, {2, 7}, {4, 2}};
  for (size_t i = 0; i < labels.size(); ++i) {
    const double expected = kDraws / 3.0 / of_class.at(labels[i]);
    EXPECT_NEAR(counts[i], expected, 5 * std::sqrt(expected)) << i;
  }
}

// Draws at different positions, epochs and seeds are independent.
TEST(BalancedDrawsTest, DrawsAreIndependent) {
  std::vector<int32_t> labels(64);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(i % 4);
  const BalancedDraws draws(labels, 4);
  constexpr int kDraws = 20000;
  int next = 0, epoch = 0, seed = 0;
  for (int i = 0; i < kDraws; ++i) {
    next += draws(1, 0, i) == draws(1, 0, i + 1) ? 1 : 0;
    epoch += draws(1, 0, i) == draws(1, 1, i) ? 1 : 0;
    seed += draws(1, 0, i) == draws(2, 0, i) ? 1 : 0;
  }
  const double expected = kDraws / 64.0;
  for (const int same : {next, epoch, seed}) {
    EXPECT_NEAR(same, expected, 5 * std::sqrt(expected));
  }
}

TEST(BalancedDrawsTest, DrawsAreStableAcrossVersions) {
  // Checkpoints rely on it.
  std::vector<int32_t> labels;
  for (int i = 0; i < 1000; ++i) labels.push_back(i % 10 == 0 ? 0 : 1);
  const BalancedDraws draws(labels, 2);
  std::vector<int64_t> first;
  for (int64_t i = 0; i < 6; ++i) first.push_back(draws(42, 5, 1000 + i));
  EXPECT_THAT(first, ElementsAre(80, 738, 938, 514, 175, 258));
}

// A sample that occurs twice in an epoch gets different random transforms.
TEST(BalancedDrawsTest, RepeatedSamplesAreAugmentedDifferently) {
  const Folder folder;
  const std::vector<uint8_t> file = encode_png(testing::noisy({8, 8}, 3).view());
  for (const char* name : {"train/a/0.png", "train/b/0.png", "train/b/1.png", "val/a/0.png"}) {
    folder.write(name, std::string(file.begin(), file.end()));
  }
  const DataConfig config = folder.config(
      "image_folder {} sampling: BALANCED transform { random_crop { size: 8 padding: 4 } }");
  const auto dataset = open(config);
  const auto device = create_cpu_device(1);
  LoaderOptions options;
  options.order = order_options(config, *dataset);
  options.global_batch = options.capacity = 3;
  Loader loader(*dataset, *device, options);
  loader.start(0, 0);
  std::vector<std::string> of_sample_0;
  for (int i = 0; i < 12; ++i) {
    const Batch& batch = loader.next();
    const size_t bytes = dataset->spec().input.bytes();
    for (int64_t row = 0; row < batch.rows; ++row) {
      if (batch.samples[row] != 0) continue;
      of_sample_0.emplace_back(
          reinterpret_cast<const char*>(batch.inputs) + static_cast<size_t>(row) * bytes, bytes);
    }
  }
  ASSERT_GT(of_sample_0.size(), 9u);  // 18 are expected
  std::map<std::string, int> different;
  for (const std::string& image : of_sample_0) ++different[image];
  EXPECT_GT(different.size() * 4, of_sample_0.size() * 3);
}

std::vector<std::string> problems(const DataConfig& config) {
  return class_problems(config, *open(config), *open_dataset(config, Part::kEvaluation));
}

TEST(ClassProblems, LabelsFromOneMakeAnEmptyClass) {
  const Folder folder;
  folder.write("t.csv", "1,1\n2,2\n3,3\n4,2\n");
  EXPECT_THAT(problems(folder.config(kTableConfig)),
              ElementsAre("class 0 has no training samples; labels are expected to be 0, 1, "
                          "2, ... without gaps"));
  folder.write("t.csv", "1,0\n2,10\n3,0\n4,10\n");
  EXPECT_THAT(
      problems(folder.config("csv { train_file: 't.csv' eval_file: 't.csv' classes: 91 }")),
      ElementsAre("89 of 91 classes have no training samples: 1, 2, 3, 4, 5, 6, 7, 8, 9, 11 "
                  "and 79 more; labels are expected to be 0, 1, 2, ... without gaps"));
}

TEST(ClassProblems, AHoldoutMayLackAClass) {
  const Folder folder;
  std::string rows;
  for (int i = 0; i < 60; ++i) rows += fmt::format("{},{}\n", i, i % 20 == 0 ? 1 : 0);
  folder.write("t.csv", rows);
  DataConfig config = folder.config("csv { train_file: 't.csv' } holdout: 0.1");
  int lacking = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    config.set_holdout_seed(seed);
    config.set_holdout_stratified(false);
    const std::vector<std::string> found = problems(config);
    lacking += found.empty() ? 0 : 1;
    if (!found.empty()) {
      EXPECT_THAT(found, ElementsAre("class 1 has no evaluation samples; data.holdout_stratified: "
                                     "true holds out some of each class"));
    }
    config.set_holdout_stratified(true);
    EXPECT_THAT(problems(config), ElementsAre()) << seed;
  }
  EXPECT_GT(lacking, 0);
}

TEST(ClassProblems, NamesThatDifferInCaseOrBlanks) {
  EXPECT_EQ(similar_classes({"a", "b", "ab"}), "");
  EXPECT_EQ(similar_classes({"Pos", "neg", "pos "}),
            "classes 0 ('Pos') and 2 ('pos ') have names that differ only in case or blanks");
  EXPECT_EQ(
      similar_classes({"a", "A", " a"}),
      "classes 0 ('a') and 1 ('A') have names that differ only in case or blanks, and so do 1 "
      "more");
  const Folder folder;
  folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n");
  folder.write("t.csv", "text,label\na,yes\na,Yes\na,no\n");
  EXPECT_THAT(problems(folder.config("labeled_text { train: 't.csv' eval: 't.csv' tokenizer { "
                                     "wordpiece {} } length: 3 }")),
              ElementsAre("classes 0 ('Yes') and 2 ('yes') have names that differ only in case or "
                          "blanks"));
  // Characters of a text are not classes.
  folder.write("t.txt", "aAbB aAbB aAbB ");
  EXPECT_THAT(problems(folder.config("text { train_file: 't.txt' eval_file: 't.txt' length: 2 }")),
              ElementsAre());
}

}  // namespace
}  // namespace trireme::data
