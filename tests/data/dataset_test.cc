#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>

#include "data/classes.h"
#include "tests/data/files.h"

namespace trireme::data {
namespace {

using testing::config_error;
using testing::data_error;
using ::testing::ElementsAre;
using testing::Folder;
using testing::sample;
using testing::values;

// Rows "i, i % 3".
Folder& counting(Folder& folder, int rows) {
  std::string text;
  for (int i = 0; i < rows; ++i) text += std::to_string(i) + "," + std::to_string(i % 3) + "\n";
  folder.write("x.csv", text);
  return folder;
}

std::vector<float> all(const DataConfig& config, Part part) {
  const auto dataset = open_dataset(config, part);
  std::vector<float> out;
  for (int64_t i = 0; i < dataset->size(); ++i) {
    const testing::Sample s = sample(*dataset, i);
    out.push_back(values<float>(s.input)[0]);
    EXPECT_EQ(s.label(), static_cast<int>(out.back()) % 3);
  }
  return out;
}

TEST(HoldoutTest, PartsAreDisjointCompleteAndStable) {
  Folder folder;
  DataConfig config = counting(folder, 101).config("csv { train_file: 'x.csv' } holdout: 0.2");
  const std::vector<float> training = all(config, Part::kTraining);
  const std::vector<float> evaluation = all(config, Part::kEvaluation);
  EXPECT_EQ(training.size(), 81);
  EXPECT_EQ(evaluation.size(), 20);
  EXPECT_TRUE(std::is_sorted(training.begin(), training.end()));
  EXPECT_TRUE(std::is_sorted(evaluation.begin(), evaluation.end()));
  std::set<float> together(training.begin(), training.end());
  together.insert(evaluation.begin(), evaluation.end());
  EXPECT_EQ(together.size(), 101);
  EXPECT_EQ(all(config, Part::kEvaluation), evaluation);
  // The held-out samples are spread over the data set.
  EXPECT_LT(evaluation.front(), 30);
  EXPECT_GT(evaluation.back(), 70);
  config.set_holdout_seed(2);
  EXPECT_NE(all(config, Part::kEvaluation), evaluation);
  EXPECT_EQ(all(config, Part::kEvaluation).size(), 20);
}

TEST(HoldoutTest, SamplesAreEquallyLikely) {
  Folder folder;
  DataConfig config = counting(folder, 10).config("csv { train_file: 'x.csv' } holdout: 0.3");
  std::map<float, int> drawn;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    config.set_holdout_seed(seed);
    for (const float x : all(config, Part::kEvaluation)) ++drawn[x];
  }
  for (int i = 0; i < 10; ++i) EXPECT_NEAR(drawn[static_cast<float>(i)], 300, 75) << i;
}

TEST(HoldoutTest, Stratified) {
  Folder folder;
  std::string rows;
  for (int i = 0; i < 100; ++i) rows += fmt::format("{},{}\n", i, i < 2 ? 2 : i < 20 ? 1 : 0);
  folder.write("x.csv", rows);
  DataConfig config =
      folder.config("csv { train_file: 'x.csv' } holdout: 0.2 holdout_stratified: true");
  const auto counts = [&](Part part) {
    return class_counts(open_dataset(config, part)->labels(), 3);
  };
  for (uint64_t seed = 0; seed < 10; ++seed) {
    config.set_holdout_seed(seed);
    EXPECT_EQ(counts(Part::kEvaluation), (std::vector<int64_t>{16, 4, 1})) << seed;
    EXPECT_EQ(counts(Part::kTraining), (std::vector<int64_t>{64, 14, 1})) << seed;
  }
  folder.write("y.csv", "1,0.5\n2,0.5\n3,1\n4,2\n");
  EXPECT_SAYS(
      config_error(folder.config("csv { train_file: 'y.csv' regression: true } holdout: 0.5 "
                                 "holdout_stratified: true")),
      "data.holdout_stratified: needs samples with class labels, not ");
}

TEST(HoldoutTest, ReplacesEvaluationFiles) {
  Folder folder;
  folder.write("train-images-idx3-ubyte", testing::idx({10, 1, 1}, testing::pixels(10)));
  folder.write("train-labels-idx1-ubyte", testing::idx({10}, std::string(10, '\1')));
  const DataConfig config = folder.config("idx {} holdout: 0.5");
  EXPECT_EQ(open_dataset(config, Part::kTraining)->size(), 5);
  EXPECT_EQ(open_dataset(config, Part::kEvaluation)->size(), 5);
}

TEST(HoldoutTest, RejectsAnEmptyPart) {
  Folder folder;
  counting(folder, 3);
  EXPECT_SAYS(data_error(folder.config("csv { train_file: 'x.csv' } holdout: 0.1")),
              "data.holdout 0.1 of 3 samples leaves none to evaluate; set a larger fraction");
  EXPECT_SAYS(data_error(folder.config("csv { train_file: 'x.csv' } holdout: 0.9")),
              "leaves none to train on");
}

TEST(ConfigTest, ErrorsNameTheField) {
  const Folder folder;
  EXPECT_SAYS(config_error(folder.config("")), "data: has no format");
  EXPECT_SAYS(config_error(folder.config("idx {} holdout: 1")), "data.holdout: 1 is not in (0, 1)");
  EXPECT_SAYS(config_error(folder.config("idx {} holdout: nan")),
              "data.holdout: nan is not in (0, 1)");
  EXPECT_SAYS(config_error(folder.config("synthetic {} holdout: 0.5")),
              "data.holdout: synthetic data has");
  EXPECT_SAYS(config_error(folder.config("synthetic {} threads: -1")),
              "data.threads: -1 is not in [0, 256]");
  EXPECT_SAYS(config_error(folder.config("synthetic {} prefetch: 0")),
              "data.prefetch: 0 is not in [1, 1024]");
  EXPECT_SAYS(config_error(folder.config("synthetic {} normalize { mean: [1, 2] }")),
              "data.normalize.mean: has 2 values; give 1 or 3, as samples are [3, 32, 32]");
  EXPECT_SAYS(config_error(folder.config("synthetic {} normalize { mean: nan }")),
              "data.normalize.mean: nan is not finite");
  EXPECT_SAYS(config_error(folder.config("synthetic {} normalize { std: 0 }")),
              "data.normalize.std: 0 is not above 0");
  EXPECT_SAYS(config_error(folder.config("synthetic { shape: [3, 0, 4] }")),
              "data.synthetic.shape: 0 is less than 1");
  EXPECT_SAYS(config_error(folder.config("synthetic { shape: [4000000000, 4000000000, 4] }")),
              "data.synthetic.shape: a sample would have more than 2^31 elements");
  EXPECT_SAYS(config_error(folder.config("synthetic { noise: 1.5 }")),
              "data.synthetic.noise: 1.5 is not in");
  EXPECT_SAYS(config_error(folder.config("synthetic { count: 0 }")),
              "data.synthetic.count: 0 is not in");
  EXPECT_SAYS(config_error(folder.config("synthetic { classes: 0 }")),
              "data.synthetic.classes: 0 is not in");
}

TEST(ConfigTest, NormalizationIsInTheSpec) {
  const Folder folder;
  const auto unset = open_dataset(folder.config("synthetic {}"), Part::kTraining);
  EXPECT_THAT(unset->spec().mean, ElementsAre(0));
  EXPECT_THAT(unset->spec().stddev, ElementsAre(1));
  const auto set = open_dataset(
      folder.config("synthetic {} normalize { mean: [1, 2, 3] std: 0.5 }"), Part::kTraining);
  EXPECT_THAT(set->spec().mean, ElementsAre(1, 2, 3));
  EXPECT_THAT(set->spec().stddev, ElementsAre(0.5F));
}

TEST(SyntheticTest, SamplesAreAFunctionOfTheIndex) {
  const Folder folder;
  const DataConfig config =
      folder.config("synthetic { shape: [3, 9, 10] classes: 4 count: 50 eval_count: 20 }");
  const auto a = open_dataset(config, Part::kTraining);
  const auto b = open_dataset(config, Part::kTraining);
  const auto evaluation = open_dataset(config, Part::kEvaluation);
  ASSERT_EQ(a->size(), 50);
  ASSERT_EQ(evaluation->size(), 20);
  EXPECT_NO_THROW(check_compatible(*a, *evaluation));
  std::set<std::vector<int8_t>> seen;
  for (int64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(sample(*a, i), sample(*b, i));
    seen.insert(values<int8_t>(sample(*a, i).input));
  }
  for (int64_t i = 0; i < 20; ++i) seen.insert(values<int8_t>(sample(*evaluation, i).input));
  EXPECT_EQ(seen.size(), 70) << "samples repeat";
  EXPECT_SAYS(a->description(), "synthetic: 50 samples of u8 [3, 9, 10] in 4 classes");
}

// A nearest-class-mean classifier, fitted to the training samples, classifies the others.
TEST(SyntheticTest, CanBeLearned) {
  for (const char* shape : {"[1, 12, 12]", "[64]"}) {
    const Folder folder;
    const DataConfig config = folder.config(std::string("synthetic { shape: ") + shape +
                                            " classes: 5 count: 100 eval_count: 200 }");
    const auto training = open_dataset(config, Part::kTraining);
    const size_t elements = training->spec().input.bytes();
    std::vector<std::vector<double>> mean(5, std::vector<double>(elements));
    for (int64_t i = 0; i < 100; ++i) {
      const testing::Sample s = sample(*training, i);
      for (size_t k = 0; k < elements; ++k) {
        mean[static_cast<size_t>(s.label())][k] += std::to_integer<int>(s.input[k]) / 20.0;
      }
    }
    const auto evaluation = open_dataset(config, Part::kEvaluation);
    int right = 0;
    for (int64_t i = 0; i < 200; ++i) {
      const testing::Sample s = sample(*evaluation, i);
      std::array<double, 5> distance{};
      for (size_t c = 0; c < 5; ++c) {
        for (size_t k = 0; k < elements; ++k) {
          const double d = std::to_integer<int>(s.input[k]) - mean[c][k];
          distance[c] += d * d;
        }
      }
      const auto best = std::min_element(distance.begin(), distance.end()) - distance.begin();
      right += best == s.label() ? 1 : 0;
    }
    EXPECT_GT(right, 190) << shape;
  }
}

TEST(DatasetTest, RejectsIndicesOutOfRange) {
  Folder folder;
  const auto csv =
      open_dataset(counting(folder, 3).config("csv { train_file: 'x.csv' }"), Part::kTraining);
  const auto synthetic = open_dataset(folder.config("synthetic { count: 3 }"), Part::kTraining);
  for (const Dataset* dataset : {csv.get(), synthetic.get()}) {
    EXPECT_SAYS(testing::message<DataError>([&] { sample(*dataset, 3); }),
                "sample 3 is out of range; the last one is 2");
    EXPECT_SAYS(testing::message<DataError>([&] { sample(*dataset, -1); }),
                "sample -1 is out of range");
  }
}

TEST(DatasetTest, RejectsAFolderInPlaceOfAFile) {
  Folder folder;
  folder.write("x.csv/inside", "");
  EXPECT_SAYS(data_error(folder.config("csv { train_file: 'x.csv' }")),
              "has no file x.csv or x.csv.gz");
}

}  // namespace
}  // namespace trireme::data
