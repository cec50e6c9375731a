// Batches of texts of similar length: an order with each sample once, for any number of ranks and
// any batch size, in batches that need little padding.
#include "data/length_buckets.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include "data/loader.h"
#include "tests/data/files.h"

namespace trireme::data {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kLongest = 30;
constexpr int64_t kSize = 203;

// Many short texts, few long ones.
int32_t tokens_of(int64_t index) {
  return 1 + static_cast<int32_t>(index * index % 7 * (index % 3 == 0 ? 7 : 1));
}

std::vector<int32_t> lengths() {
  std::vector<int32_t> lengths;
  for (int64_t i = 0; i < kSize; ++i) lengths.push_back(tokens_of(i));
  return lengths;
}

// Sample i consists of tokens_of(i) tokens i + 1 and padding.
class Texts final : public Dataset {
 public:
  explicit Texts(std::optional<int64_t> bad = {}) : bad_(bad) {
    spec_.input = {DType::kI32, Shape{kLongest}, Layout::row_major()};
    spec_.target = {DType::kI32, Shape{}, Layout::row_major()};
    spec_.classes = 2;
  }
  const SampleSpec& spec() const override { return spec_; }
  int64_t size() const override { return kSize; }
  void read(SampleId id, std::byte* input, std::byte* target) const override {
    if (id.index == bad_) throw DataError("texts", "bad");
    std::vector<int32_t> tokens(kLongest);
    std::fill_n(tokens.begin(), tokens_of(id.index), static_cast<int32_t>(id.index + 1));
    std::memcpy(input, tokens.data(), kLongest * sizeof(int32_t));
    std::memset(target, 0, sizeof(int32_t));
  }
  std::string description() const override { return "texts"; }
  std::vector<int32_t> lengths() const override { return data::lengths(); }

 private:
  SampleSpec spec_;
  const std::optional<int64_t> bad_;
};

OrderOptions order_of(const Dataset& dataset,
                      const std::string& text = "length_buckets {block: 20}") {
  DataConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  return order_options(config, dataset);
}

TEST(ChooseLengths, WasteLittlePadding) {
  const std::vector<int32_t> lengths{3, 3, 3, 8, 9, 12, 30, 61};
  EXPECT_THAT(choose_lengths(lengths, 128, 1), ElementsAre(64, 128));
  EXPECT_THAT(choose_lengths(lengths, 128, 2), ElementsAre(16, 64, 128));  // 7 * 16 + 64 tokens
  EXPECT_THAT(choose_lengths(lengths, 128, 4), ElementsAre(8, 16, 32, 64, 128));
  EXPECT_THAT(choose_lengths(lengths, 64, 9), ElementsAre(8, 16, 24, 32, 40, 48, 56, 64));
  EXPECT_THAT(choose_lengths(lengths, 61, 2), ElementsAre(16, 61));
  EXPECT_THAT(choose_lengths(std::vector<int32_t>{1}, 3, 4), ElementsAre(3));
}

// Of 1 to 4 lengths there are none with less padding.
TEST(ChooseLengths, AreTheBest) {
  const std::vector<int32_t> texts = lengths();
  const auto cost = [&](const std::vector<int64_t>& ends) {
    int64_t sum = 0;
    for (const int32_t length : texts) sum += *std::ranges::lower_bound(ends, int64_t{length});
    return sum;
  };
  for (int64_t count = 1; count <= 3; ++count) {
    const int64_t chosen = cost(choose_lengths(texts, kLongest, count));
    for (int64_t a : {8, 16, 24}) {
      for (int64_t b : {8, 16, 24}) {
        const bool applies = count == 2 || (count == 3 && a < b);
        if (!applies) continue;
        const std::vector<int64_t> two{a, kLongest}, three{a, b, kLongest};
        EXPECT_LE(chosen, cost(count == 2 ? two : three));
      }
    }
  }
}

TEST(LengthBucketsTest, EachSampleComesOnceInEachEpoch) {
  const Texts texts;
  for (const bool shuffle : {true, false}) {
    OrderOptions options = order_of(texts);
    options.shuffle = shuffle;
    std::vector<std::vector<int64_t>> epochs;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      const Order order(options, 5, epoch, kSize);
      std::vector<int64_t>& samples = epochs.emplace_back();
      for (int64_t i = 0; i < kSize; ++i) samples.push_back(order(i));
      std::vector<int64_t> sorted = samples;
      std::ranges::sort(sorted);
      for (int64_t i = 0; i < kSize; ++i) ASSERT_EQ(sorted[static_cast<size_t>(i)], i);
    }
    EXPECT_EQ(epochs[0] != epochs[1], shuffle);
    EXPECT_EQ(epochs[1] != epochs[2], shuffle);
  }
}

TEST(LengthBucketsTest, BlocksHaveSamplesOfOneBucketInRandomOrder) {
  const Texts texts;
  const OrderOptions options = order_of(texts, "length_buckets {count: 2 block: 10}");
  EXPECT_THAT(options.buckets->ends(), ElementsAre(8, kLongest));
  const Order order(options, 5, 0, kSize);
  std::vector<int64_t> of_blocks;
  const auto short_texts =
      std::ranges::count_if(lengths(), [](int32_t length) { return length <= 8; });
  const int64_t blocks = short_texts / 10 + (kSize - short_texts) / 10;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t length = order.batch_length(block * 10, 10);
    of_blocks.push_back(length);
    for (int64_t i = block * 10; i < (block + 1) * 10; ++i) {
      EXPECT_EQ(tokens_of(order(i)) <= 8, length == 8);
    }
  }
  EXPECT_FALSE(std::ranges::is_sorted(of_blocks));
  EXPECT_FALSE(std::ranges::is_sorted(of_blocks, std::ranges::greater()));
}

TEST(LengthBucketsTest, BatchesHoldTheirLongestText) {
  const Texts texts;
  for (const bool shuffle : {true, false}) {
    OrderOptions options = order_of(texts);
    options.shuffle = shuffle;
    for (const int64_t rows : {1, 7, 20, 64}) {
      const Order order(options, 5, 2, kSize);
      for (int64_t position = 0; position < kSize; position += rows) {
        const int64_t end = std::min(position + rows, kSize);
        int64_t longest = 0;
        for (int64_t i = position; i < end; ++i) {
          const auto tokens = int64_t{tokens_of(order(i))};
          longest = std::max(longest, *std::ranges::lower_bound(options.buckets->ends(), tokens));
        }
        const int64_t length = order.batch_length(position, end - position);
        EXPECT_EQ(length, longest == kLongest ? 0 : longest) << position << " " << rows;
      }
    }
  }
}

TEST(LengthBucketsTest, WasteIsThePaddingOfTheBatches) {
  const Texts texts;
  const OrderOptions options = order_of(texts);
  const LengthBuckets::Waste waste = options.buckets->waste({.seed = 5, .epoch = 0}, 20);
  const std::vector<int32_t> all = lengths();
  EXPECT_EQ(waste.tokens, std::accumulate(all.begin(), all.end(), 0));
  EXPECT_EQ(waste.whole, kSize * kLongest);
  double batches = 0;
  const Order order(options, 5, 0, kSize);
  for (int64_t position = 0; position < kSize; position += 20) {
    const int64_t rows = std::min<int64_t>(20, kSize - position);
    const int64_t length = order.batch_length(position, rows);
    batches += static_cast<double>(rows * (length == 0 ? kLongest : length));
  }
  EXPECT_EQ(waste.batches, batches);
  EXPECT_LT(waste.share(), 0.7 * waste.share_of_whole());
}

TEST(LengthBucketsTest, EvaluationSamplesHaveTheSameLengths) {
  const Texts texts;
  const OrderOptions training = order_of(texts);
  const OrderOptions evaluation = evaluation_order(training, texts);
  EXPECT_FALSE(evaluation.shuffle);
  EXPECT_EQ(evaluation.buckets->ends(), training.buckets->ends());
  EXPECT_EQ(evaluation_order({}, texts).buckets, nullptr);
}

TEST(LengthBucketsTest, InvalidConfigurationsAreNamed) {
  const Texts texts;
  const auto error = [&](const std::string& options) {
    return testing::message<ConfigError>([&] { order_of(texts, options); });
  };
  EXPECT_SAYS(error("length_buckets {count: 0}"), "data.length_buckets.count: 0 is not in [1, 32]");
  EXPECT_SAYS(error("length_buckets {count: 33}"),
              "data.length_buckets.count: 33 is not in [1, 32]");
  EXPECT_SAYS(error("length_buckets {block: 0}"), "data.length_buckets.block: 0 is less than 1");
  EXPECT_SAYS(error("sampling: BALANCED length_buckets {}"),
              "data.sampling: BALANCED draws from all samples at random; remove "
              "data.length_buckets");
  testing::Folder folder;
  folder.write("a.csv", "1,0\n2,1\n");
  const DataConfig table = folder.config("csv { train_file: 'a.csv' } length_buckets {}");
  EXPECT_SAYS(testing::message<ConfigError>(
                  [&] { order_options(table, *open_dataset(table, Part::kTraining)); }),
              "data.length_buckets: needs samples with padding (data.labeled_text), not ");
}

// The rows of all ranks of a global batch, one after the other.
struct Rows {
  int64_t length = 0;
  std::vector<int32_t> tokens;
  bool operator==(const Rows&) const = default;
};

class BucketLoading : public ::testing::TestWithParam<int> {
 protected:
  std::vector<Rows> load(int ranks, int threads, int64_t position, int64_t batches,
                         int64_t global = 20, std::optional<int64_t> bad = {}) {
    const Texts texts(bad);
    const auto device = create_cpu_device(1);
    std::vector<Rows> all(static_cast<size_t>(batches));
    for (int rank = 0; rank < ranks; ++rank) {
      LoaderOptions options;
      options.seed = 5;
      options.order = order_of(texts);
      options.global_batch = global;
      options.capacity = (global + ranks - 1) / ranks;
      options.rank = rank;
      options.ranks = ranks;
      options.threads = threads;
      if (bad) options.max_bad_records = 10;
      Loader loader(texts, *device, options);
      loader.start(1, position);
      for (Rows& rows : all) {
        const Batch& batch = loader.next();
        rows.length = batch.length;
        const int64_t length = batch.length > 0 ? batch.length : kLongest;
        const auto* tokens = reinterpret_cast<const int32_t*>(batch.inputs);
        rows.tokens.insert(rows.tokens.end(), tokens, tokens + batch.rows * length);
        for (int64_t row = 0; row < batch.rows; ++row) {
          const int64_t own = tokens_of(batch.samples[row]);
          for (int64_t t = 0; t < length; ++t) {
            EXPECT_EQ(tokens[row * length + t], t < own ? batch.samples[row] + 1 : 0);
          }
        }
        for (int64_t i = batch.rows * length; i < options.capacity * kLongest; ++i) {
          EXPECT_EQ(tokens[i], 0);  // rows beyond those of the batch
        }
      }
    }
    return all;
  }
};

TEST_P(BucketLoading, RanksAndThreadsReadTheSameBatches) {
  const std::vector<Rows> alone = load(1, 0, 0, 25);
  EXPECT_EQ(load(GetParam(), 0, 0, 25), alone);
  EXPECT_EQ(load(GetParam(), 2, 0, 25), alone);
  const std::vector<Rows> rest = load(GetParam(), 0, 60, 22);  // resumes in mid-epoch
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), alone.begin() + 3));
  const auto lengths = [&] {
    std::vector<int64_t> found;
    for (const Rows& rows : alone) found.push_back(rows.length);
    std::ranges::sort(found);
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }();
  EXPECT_GE(lengths.size(), 3u);
}

TEST_P(BucketLoading, BadRowsAreLeftOut) {
  EXPECT_EQ(load(GetParam(), 0, 0, 12, 20, 17), load(1, 0, 0, 12, 20, 17));
}

INSTANTIATE_TEST_SUITE_P(Ranks, BucketLoading, ::testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace trireme::data
