#include <gmock/gmock.h>

#include <map>
#include <set>

#include "core/ignored_label.h"
#include "tests/data/files.h"

namespace trireme::data {
namespace {

using testing::config_error;
using testing::Folder;
using testing::values;

constexpr int64_t kLength = 50, kWindows = 200;

class MaskedTokensTest : public ::testing::Test {
 protected:
  MaskedTokensTest() {
    std::string bytes;
    for (int64_t i = 0; i < kLength * kWindows + 1; ++i) {
      bytes += static_cast<char>(i * i % 17 + 3);
      bytes += '\0';
    }
    folder_.write("a.bin", bytes);
  }
  DataConfig config(const std::string& mask) const {
    return folder_.config(
        "tokens { train: 'a.bin' eval: 'a.bin' length: 50 vocab_size: 20 } mask { " + mask + " }");
  }
  std::unique_ptr<Dataset> open(const std::string& mask, uint64_t seed = 1,
                                Part part = Part::kTraining) const {
    return open_dataset(config(mask), part, {.seed = seed});
  }

  struct Sample {
    std::vector<int32_t> inputs, labels;
    bool operator==(const Sample&) const = default;
  };
  static Sample read(const Dataset& dataset, int64_t index, int64_t epoch = 0) {
    Sample sample{std::vector<int32_t>(kLength), std::vector<int32_t>(kLength)};
    dataset.read({.index = index, .epoch = epoch},
                 reinterpret_cast<std::byte*>(sample.inputs.data()),
                 reinterpret_cast<std::byte*>(sample.labels.data()));
    return sample;
  }
  // Returns the tokens of a sample without masks.
  static std::vector<int32_t> tokens(int64_t index) {
    std::vector<int32_t> tokens;
    for (int64_t t = 0; t < kLength; ++t) {
      const int64_t i = index * kLength + t;
      tokens.push_back(static_cast<int32_t>(i * i % 17 + 3));
    }
    return tokens;
  }

  Folder folder_;
};

TEST_F(MaskedTokensTest, ChosenTokensAreTheLabels) {
  const auto dataset = open("token: 1");
  ASSERT_EQ(dataset->size(), kWindows);
  EXPECT_EQ(dataset->spec().classes, 20);
  EXPECT_SAYS(dataset->description(), "of which 15% of the tokens are masked");
  std::map<std::string, double> counts;
  for (int64_t i = 0; i < kWindows; ++i) {
    const Sample sample = read(*dataset, i);
    const std::vector<int32_t> original = tokens(i);
    for (size_t t = 0; t < original.size(); ++t) {
      if (sample.labels[t] == kIgnoredLabel) {
        ASSERT_EQ(sample.inputs[t], original[t]);
        continue;
      }
      ASSERT_EQ(sample.labels[t], original[t]);
      ++counts["chosen"];
      ++counts[sample.inputs[t] == 1 ? "mask" : sample.inputs[t] == original[t] ? "same" : "other"];
    }
  }
  // 10000 tokens; of the random ones, one in 20 is the mask, and one in 20 the token itself.
  EXPECT_NEAR(counts["chosen"], 1500, 120);
  EXPECT_NEAR(counts["mask"] / counts["chosen"], 0.805, 0.04);
  EXPECT_NEAR(counts["other"] / counts["chosen"], 0.09, 0.03);
  EXPECT_NEAR(counts["same"] / counts["chosen"], 0.105, 0.03);
}

TEST_F(MaskedTokensTest, DependOnSeedEpochAndSampleOnly) {
  const auto dataset = open("token: 1"), again = open("token: 1"), other = open("token: 1", 2);
  EXPECT_EQ(read(*dataset, 7, 3), read(*again, 7, 3));
  EXPECT_NE(read(*dataset, 7, 3), read(*other, 7, 3));
  EXPECT_NE(read(*dataset, 7, 3), read(*dataset, 7, 4));
  std::set<std::vector<bool>> patterns;
  for (int64_t i = 0; i < 20; ++i) {
    std::vector<bool> chosen;
    for (const int32_t label : read(*dataset, i).labels) chosen.push_back(label != kIgnoredLabel);
    patterns.insert(chosen);
  }
  EXPECT_EQ(patterns.size(), 20u);
}

// Runs with different seeds can be compared.
TEST_F(MaskedTokensTest, OfEvaluationsDoNotDependOnTheSeed) {
  const auto first = open("token: 1", 1, Part::kEvaluation);
  const auto second = open("token: 1", 2, Part::kEvaluation);
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(read(*first, i), read(*second, i));
}

TEST_F(MaskedTokensTest, ATokenOfItsOwnIsAdded) {
  const auto dataset = open("probability: 1");
  EXPECT_EQ(dataset->spec().classes, 21);
  const Sample sample = read(*dataset, 3);
  EXPECT_EQ(sample.labels, tokens(3));
  EXPECT_GT(std::ranges::count(sample.inputs, 20), 30);
}

TEST_F(MaskedTokensTest, KeptTokensAndPaddingStay) {
  const auto dataset = open("token: 1 probability: 1 keep: [3, 4, 7]", 1, Part::kEvaluation);
  const auto is_kept = [](int32_t token) { return token == 3 || token == 4 || token == 7; };
  for (int64_t i = 0; i < dataset->size(); ++i) {
    const Sample sample = read(*dataset, i);
    const std::vector<int32_t> original = tokens(i);
    for (size_t t = 0; t < original.size(); ++t) {
      const bool kept = is_kept(original[t]);
      EXPECT_EQ(sample.labels[t], kept ? kIgnoredLabel : original[t]);
      EXPECT_EQ(is_kept(sample.inputs[t]), kept);
      if (kept) {
        EXPECT_EQ(sample.inputs[t], original[t]);
      }
    }
  }
  // The last window of an evaluation file may be incomplete.
  folder_.write("b.bin", std::string("\5\0\6\0\7\0\10\0", 8));
  const auto padded = open_dataset(
      folder_.config("tokens { train: 'a.bin' eval: 'b.bin' length: 50 vocab_size: 20 } "
                     "mask { token: 1 probability: 1 }"),
      Part::kEvaluation);
  const Sample sample = read(*padded, 0);
  EXPECT_EQ(std::ranges::count(sample.labels, kIgnoredLabel), kLength - 3);
  EXPECT_EQ(sample.inputs[3], 0);
}

TEST_F(MaskedTokensTest, BadConfigurations) {
  const auto error = [&](const std::string& mask) {
    return config_error(config(mask), Part::kTraining);
  };
  EXPECT_SAYS(error("token: 20"),
              "data.mask.token: 20 is not in the vocabulary of the data, [0, 20)");
  EXPECT_SAYS(error("keep: [1, -1]"), "data.mask.keep[1]: -1 is not in the vocabulary");
  EXPECT_SAYS(error("probability: 0"), "data.mask.probability: 0 is not in (0, 1]");
  EXPECT_SAYS(error("probability: nan"), "data.mask.probability: nan is not in (0, 1]");
  EXPECT_SAYS(
      config_error(folder_.config("synthetic {} mask {}"), Part::kTraining),
      "data.mask: needs text or tokens (data.text, data.tokens); samples are u8 [3, 32, 32]");
}

}  // namespace
}  // namespace trireme::data
