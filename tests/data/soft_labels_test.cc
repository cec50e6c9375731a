#include "data/soft_labels.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string>
#include <utility>

#include "data/samples.h"
#include "tests/data/files.h"

namespace trireme::data {
namespace {

using testing::config_error;
using ::testing::ElementsAre;
using testing::Folder;
using testing::sample;
using testing::values;

// Rows "value, label".
DataConfig labeled(const Folder& folder, const std::string& rows, const std::string& rest = "") {
  folder.write("x.csv", rows);
  return folder.config("csv { train_file: 'x.csv' eval_file: 'x.csv' } " + rest);
}

TEST(SoftLabelsTest, AreOneForTheLabelAndZeroElsewhere) {
  Folder folder;
  const DataConfig config = labeled(folder, "5,2\n6,0\n7,3\n8,0\n", "mix { mixup_alpha: 0.2 }");
  for (const Part part : {Part::kTraining, Part::kEvaluation}) {
    const auto dataset = open_dataset(config, part);
    EXPECT_EQ(dataset->spec().target, (TensorSpec{DType::kF32, Shape{4}, Layout::row_major()}));
    EXPECT_EQ(dataset->spec().classes, 4);
    ASSERT_EQ(dataset->size(), 4);
    EXPECT_THAT(values<float>(sample(*dataset, 0).target), ElementsAre(0, 0, 1, 0));
    EXPECT_THAT(values<float>(sample(*dataset, 1).target), ElementsAre(1, 0, 0, 0));
    EXPECT_THAT(values<float>(sample(*dataset, 2).target), ElementsAre(0, 0, 0, 1));
    EXPECT_THAT(values<float>(sample(*dataset, 2).input), ElementsAre(7));
  }
}

TEST(SoftLabelsTest, ChangeOnlyTheTargets) {
  Folder folder;
  DataConfig config = labeled(folder, "5,2\n6,0\n7,0\n", "normalize { mean: 6 std: 0.5 }");
  const auto hard = open_dataset(config, Part::kTraining);
  config.mutable_mix()->set_cutmix_alpha(1);
  const auto soft = open_dataset(config, Part::kTraining);
  EXPECT_EQ(soft->spec().input, hard->spec().input);
  EXPECT_EQ(soft->spec().mean, hard->spec().mean);
  EXPECT_EQ(soft->spec().stddev, hard->spec().stddev);
  EXPECT_EQ(soft->description(), hard->description());
  EXPECT_EQ(soft->where(1), hard->where(1));
  EXPECT_EQ(soft->in_memory(), hard->in_memory());
}

TEST(SoftLabelsTest, RequireClassLabels) {
  Folder folder;
  folder.write("x.csv", "1,2\n3,4\n");
  const std::string refusal = config_error(
      folder.config("csv { train_file: 'x.csv' regression: true } mix { mixup_alpha: 1 }"));
  EXPECT_SAYS(refusal, "data.mix");
  EXPECT_SAYS(refusal, "only samples with class labels");
}

// A format should have skipped it: its probability would be written into another sample.
TEST(SoftLabelsTest, RejectALabelOutOfRange) {
  for (const int32_t label : {-1, 3}) {
    Samples samples;
    samples.spec.input = {DType::kU8, Shape{1}, Layout::row_major()};
    samples.spec.target = label_spec();
    samples.spec.classes = 3;
    samples.count = 1;
    samples.inputs = {7};
    samples.targets = label_bytes(std::vector<int32_t>{label});
    samples.source = "a file";
    const auto dataset = with_soft_labels(make_dataset(std::move(samples)));
    const std::string refusal = testing::message<DataError>([&] { sample(*dataset, 0); });
    EXPECT_SAYS(refusal, "a file");
    EXPECT_SAYS(refusal, fmt::format("label {} is not in [0, 3)", label));
  }
}

}  // namespace
}  // namespace trireme::data
