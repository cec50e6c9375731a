// Global batches are bit-identical for any number of ranks and threads and any start position,
// including transforms, mixing and skipped samples.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/device.h"
#include "core/error.h"
#include "data/images/codec.h"
#include "data/loader.h"
#include "data/mix.h"
#include "tests/data/files.h"
#include "tests/data/tars.h"

namespace trireme::data {
namespace {

constexpr int64_t kSize = 53;
constexpr int64_t kClasses = 5;

// Images that differ from epoch to epoch, like augmented ones. Some cannot be read.
class Augmented final : public Dataset {
 public:
  explicit Augmented(std::vector<int64_t> bad) : bad_(std::move(bad)) {
    spec_.input = {DType::kU8, Shape{3, 5, 4}, Layout::channels_last()};
    spec_.target = {DType::kF32, Shape{kClasses}, Layout::row_major()};
    spec_.classes = static_cast<int>(kClasses);
  }
  const SampleSpec& spec() const override { return spec_; }
  int64_t size() const override { return kSize; }
  void read(SampleId id, std::byte* input, std::byte* target) const override {
    if (std::ranges::count(bad_, id.index) > 0) {
      input[0] = std::byte{1};  // partially written
      throw DataError("augmented: record " + std::to_string(id.index), "is bad");
    }
    Draws draws(1, id.epoch, id.draw < 0 ? id.index : id.draw, 0);
    for (size_t i = 0; i < 60; ++i) input[i] = static_cast<std::byte>(draws.below(256));
    float probabilities[kClasses] = {};
    probabilities[id.index % kClasses] = 1;
    std::memcpy(target, probabilities, sizeof probabilities);
  }
  std::string description() const override { return "augmented"; }
  // One sample in ten has class 0.
  std::vector<int32_t> labels() const override {
    std::vector<int32_t> labels;
    for (int64_t i = 0; i < kSize; ++i) {
      labels.push_back(i % 10 == 0 ? 0 : static_cast<int32_t>(1 + i % (kClasses - 1)));
    }
    return labels;
  }

 private:
  SampleSpec spec_;
  std::vector<int64_t> bad_;
};

// The rows of a global batch, concatenated over all ranks.
struct GlobalBatch {
  int64_t epoch = 0;
  int64_t position = 0;
  int64_t samples = 0;
  std::string inputs;
  std::string targets;
  std::vector<int64_t> places;  // of the rows, before samples were skipped
  bool operator==(const GlobalBatch&) const = default;
};

struct Counts {
  int ranks = 1;
  int threads = 0;
};

class Ranks {
 public:
  Ranks(const Dataset& dataset, Device& device, LoaderOptions options, Counts counts)
      : input_bytes_(dataset.spec().input.bytes()), target_bytes_(dataset.spec().target.bytes()) {
    options.ranks = counts.ranks;
    options.threads = counts.threads;
    options.capacity = options.global_batch;
    for (options.rank = 0; options.rank < counts.ranks; ++options.rank) {
      loaders_.push_back(std::make_unique<Loader>(dataset, device, options));
    }
  }
  void start(int64_t epoch, int64_t position) {
    for (auto& loader : loaders_) loader->start(epoch, position);
  }
  GlobalBatch next() {
    GlobalBatch global;
    for (auto& loader : loaders_) {
      const Batch& batch = loader->next();
      global.epoch = batch.epoch;
      global.position = batch.position;
      global.samples += batch.rows;
      for (int64_t row = 0; row < batch.rows; ++row) {
        global.places.push_back(batch.places ? batch.places[row] : batch.first_row + row);
      }
      const auto rows = static_cast<size_t>(batch.rows);
      global.inputs.append(reinterpret_cast<const char*>(batch.inputs), rows * input_bytes_);
      global.targets.append(reinterpret_cast<const char*>(batch.targets), rows * target_bytes_);
    }
    return global;
  }
  int64_t batches_per_epoch() const { return loaders_[0]->batches_per_epoch(); }
  int64_t skipped() const {
    int64_t count = 0;
    for (const auto& loader : loaders_) count += loader->bad_records().count;
    return count;
  }

 private:
  size_t input_bytes_;
  size_t target_bytes_;
  std::vector<std::unique_ptr<Loader>> loaders_;
};

Mix make_mix(const std::string& text, const SampleSpec& spec) {
  MixConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  return {config, 7, spec};
}

const std::vector<std::string> kMixes = {"", "mixup_alpha: 1", "mixup_alpha: 1 cutmix_alpha: 1"};

// Parameters: index in kMixes, global batch, bad records, balanced sampling.
class OrderOverRanks : public ::testing::TestWithParam<std::tuple<int, int, bool, bool>> {
 protected:
  void SetUp() override {
    const auto [mix, global, bad, balanced] = GetParam();
    if (bad) bad_ = {0, 17, 18, 33, 52};
    dataset_ = std::make_unique<Augmented>(bad_);
    if (balanced) {
      options_.order.balanced = std::make_shared<const BalancedDraws>(dataset_->labels(), kClasses);
    }
    const std::string& text = kMixes[static_cast<size_t>(mix)];
    if (!text.empty()) mix_ = std::make_unique<Mix>(make_mix(text, dataset_->spec()));
    options_.seed = 7;
    options_.global_batch = global;
    options_.mix = mix_.get();
    if (bad) options_.max_bad_records = 100;
  }
  Ranks ranks(Counts counts) { return {*dataset_, *device_, options_, counts}; }

  std::vector<int64_t> bad_;
  std::unique_ptr<Device> device_ = create_cpu_device(1);
  std::unique_ptr<Dataset> dataset_;
  std::unique_ptr<Mix> mix_;
  LoaderOptions options_;
};

TEST_P(OrderOverRanks, GlobalBatchesAreTheSame) {
  Ranks alone = ranks({});
  const int64_t batches = 2 * alone.batches_per_epoch() + 2;
  alone.start(0, 0);
  std::vector<GlobalBatch> expected;
  for (int64_t i = 0; i < batches; ++i) expected.push_back(alone.next());
  EXPECT_NE(expected[0].inputs, expected[static_cast<size_t>(alone.batches_per_epoch())].inputs);
  for (const int count : {1, 2, 3, 4, 5}) {
    for (const int threads : {0, 1, 2, 5}) {
      Ranks these = ranks({count, threads});
      these.start(0, 0);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(these.next(), expected[i])
            << count << " ranks, " << threads << " threads, batch " << i;
        const bool epoch_done = static_cast<int64_t>(i) + 1 == alone.batches_per_epoch();
        // With balanced sampling, a sample may occur on several ranks or on none.
        if (epoch_done && !options_.order.balanced) {
          EXPECT_EQ(these.skipped(), std::ssize(bad_)) << "each on one rank";
        }
      }
    }
  }
}

TEST_P(OrderOverRanks, CanStartAnywhereWithAnyNumberOfRanks) {
  Ranks alone = ranks({});
  const int64_t per_epoch = alone.batches_per_epoch();
  Ranks others[] = {ranks({1, 2}), ranks({2, 1}), ranks({3, 2}), ranks({4, 0})};
  alone.start(0, 0);
  std::vector<GlobalBatch> expected;
  for (int64_t i = 0; i < 2 * per_epoch; ++i) expected.push_back(alone.next());
  for (int64_t from = 0; from < 2 * per_epoch; ++from) {
    Ranks& these = others[from % 4];
    these.start(from / per_epoch, from % per_epoch * options_.global_batch);
    for (int64_t i = from; i < std::min(from + 4, 2 * per_epoch); ++i) {
      ASSERT_EQ(these.next(), expected[static_cast<size_t>(i)])
          << "batch " << i << " from " << from;
    }
  }
}

TEST_P(OrderOverRanks, EverySampleOccursOnceAndLabelsSumToOne) {
  if (options_.order.balanced) GTEST_SKIP() << "sampling with replacement";
  Ranks these = ranks({3, 2});
  these.start(0, 0);
  std::vector<double> of_class(kClasses);
  int64_t samples = 0;
  for (int64_t i = 0; i < these.batches_per_epoch(); ++i) {
    const GlobalBatch global = these.next();
    samples += global.samples;
    for (int64_t row = 0; row < global.samples; ++row) {
      float target[kClasses];
      std::memcpy(target, global.targets.data() + static_cast<size_t>(row) * sizeof target,
                  sizeof target);
      double sum = 0;
      for (size_t c = 0; c < kClasses; ++c) sum += target[c], of_class[c] += target[c];
      EXPECT_FLOAT_EQ(static_cast<float>(sum), 1);
    }
  }
  EXPECT_EQ(samples, kSize - std::ssize(bad_));
  // The share that a row loses goes to its partner.
  std::vector<double> expected(kClasses);
  for (int64_t i = 0; i < kSize; ++i) {
    if (std::ranges::count(bad_, i) == 0) ++expected[static_cast<size_t>(i % kClasses)];
  }
  for (size_t c = 0; c < kClasses; ++c) EXPECT_NEAR(of_class[c], expected[c], 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Mixes, OrderOverRanks,
                         ::testing::Combine(::testing::Values(0, 1, 2),
                                            ::testing::Values(7, 16, 64), ::testing::Bool(),
                                            ::testing::Bool()));

// Images of several sizes, some of them damaged, in shards of unequal length.
class ShardsOverRanks : public ::testing::Test {
 protected:
  static constexpr int64_t kImageCount = 45;
  static constexpr int64_t kGood = kImageCount - 3;

  static std::string image(int number) {
    std::vector<uint8_t> pixels(static_cast<size_t>((20 + number % 7) * (18 + number % 5) * 3));
    Draws draws(2, 0, number, 0);
    for (uint8_t& value : pixels) value = static_cast<uint8_t>(draws.below(256));
    const ImageView view = view_of(pixels.data(), {20 + number % 7, 18 + number % 5}, 3);
    const std::vector<uint8_t> file = number % 2 ? encode_jpeg(view, 90) : encode_png(view);
    return {file.begin(), file.end()};
  }
  void SetUp() override {
    const int shards[] = {1, 30, 14};  // fewer shards than ranks, too
    int number = 0;
    for (int shard = 0; shard < 3; ++shard) {
      std::string tar;
      for (int i = 0; i < shards[shard]; ++i, ++number) {
        std::string bytes = image(number);
        if (number % 16 == 5) bytes.resize(bytes.size() / 2);
        const std::string key = "image-" + std::to_string(number);
        tar += testing::member(key + (number % 2 ? ".jpg" : ".png"), bytes);
        tar += testing::member(key + ".cls", std::to_string(number % 4));
      }
      folder_.write("train-" + std::to_string(shard) + ".tar", tar + testing::tar_end());
    }
    DataConfig config = folder_.config(R"(
        webdataset { train: "train-{0..2}.tar" classes: 4 }
        on_bad_record: SKIP max_bad_records: 3
        transform { random_resized_crop { size: 12 } }
        transform { horizontal_flip {} }
        transform { color_jitter { brightness: 0.3 hue: 0.1 } }
        transform { random_erasing { probability: 0.5 noise: true } }
        mix { mixup_alpha: 0.4 cutmix_alpha: 1 })");
    dataset_ = open_dataset(config, Part::kTraining, {.seed = 7, .progress = {}});
    mix_ = std::make_unique<Mix>(config.mix(), 7, dataset_->spec());
    options_.seed = 7;
    options_.global_batch = 8;
    options_.mix = mix_.get();
    options_.max_bad_records = 3;
  }
  Ranks ranks(Counts counts) { return {*dataset_, *device_, options_, counts}; }

  testing::Folder folder_;
  std::unique_ptr<Device> device_ = create_cpu_device(1);
  std::unique_ptr<Dataset> dataset_;
  std::unique_ptr<Mix> mix_;
  LoaderOptions options_;
};

TEST_F(ShardsOverRanks, GlobalBatchesAreTheSameFromAnyStart) {
  Ranks alone = ranks({});
  const int64_t per_epoch = alone.batches_per_epoch();
  ASSERT_EQ(per_epoch, 6);
  alone.start(0, 0);
  std::vector<GlobalBatch> expected;
  int64_t samples = 0;
  for (int64_t i = 0; i < 2 * per_epoch; ++i) {
    expected.push_back(alone.next());
    samples += expected.back().samples;
  }
  EXPECT_EQ(samples, 2 * kGood);
  EXPECT_EQ(alone.skipped(), kImageCount - kGood);
  for (const int count : {1, 2, 3, 4}) {
    for (const int threads : {0, 1, 2, 5}) {
      Ranks these = ranks({count, threads});
      for (int64_t from = 0; from < 2 * per_epoch; from += 1 + count) {
        these.start(from / per_epoch, from % per_epoch * options_.global_batch);
        for (int64_t i = from; i < 2 * per_epoch; ++i) {
          ASSERT_EQ(these.next(), expected[static_cast<size_t>(i)])
              << count << " ranks, " << threads << " threads, batch " << i << " from " << from;
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme::data
