#include "trainer/report/sample_info.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "temporary_folder.h"
#include "trainer/config/config.h"

namespace trireme::train {
namespace {

void expect_same(const SampleInfo& got, const SampleInfo& wanted) {
  EXPECT_EQ(got.spec.input, wanted.spec.input);
  EXPECT_EQ(got.spec.target, wanted.spec.target);
  EXPECT_EQ(got.spec.classes, wanted.spec.classes);
  EXPECT_EQ(got.spec.scale, wanted.spec.scale);
  EXPECT_EQ(got.spec.mean, wanted.spec.mean);
  EXPECT_EQ(got.spec.stddev, wanted.spec.stddev);
  EXPECT_EQ(got.class_names, wanted.class_names);
  EXPECT_EQ(got.columns, wanted.columns);
}

SampleInfo images() {
  SampleInfo info;
  info.spec.input = {DType::kU8, Shape{3, 777, 24}, Layout::channels_last()};
  info.spec.target = {DType::kI32, Shape{}, Layout::row_major()};
  info.spec.classes = 3;
  info.spec.scale = 1.0F / 255;
  info.spec.mean = {0.4914F, 0.4822F, 0.4465F};
  info.spec.stddev = {0.247F, 0.2435F, 0.2616F};
  info.class_names = {"cat", "\"dog\"\n", "\xC3\xA4"};
  return info;
}

TEST(SampleInfo, IsReadBackExactly) {
  const TemporaryFolder folder;
  SampleInfo numbers;
  numbers.spec.input = {DType::kF32, Shape{7}, Layout::row_major()};
  numbers.spec.target = {DType::kF32, Shape{2}, Layout::row_major()};
  SampleInfo table = numbers;
  table.columns = {{"a", "b", "", "d", "e", "NaN", "g", "h", "i"}, 9, {8, 1}};
  SampleInfo no_header = numbers;
  no_header.columns = {{}, 8, {0}};
  for (const SampleInfo& info : {images(), numbers, table, no_header}) {
    write_sample_info(folder.path(), info);
    expect_same(read_sample_info(folder.path(), {}), info);
  }
}

TEST(SampleInfo, ReplacesInvalidUtf8InNames) {
  const TemporaryFolder folder;
  SampleInfo info = images();
  info.class_names[0] = "\xFFx";
  write_sample_info(folder.path(), info);
  EXPECT_EQ(read_sample_info(folder.path(), {}).class_names[0], "\xEF\xBF\xBDx");
}

TEST(SampleInfo, RejectsTooFewNames) {
  const TemporaryFolder folder;
  SampleInfo info = images();
  info.class_names.pop_back();
  write_sample_info(folder.path(), info);
  try {
    read_sample_info(folder.path(), {});
    ADD_FAILURE() << "two names for three classes are accepted";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("has 2 class names for 3 classes"), std::string::npos);
  }
}

TEST(SampleInfo, RejectsColumnsThatDoNotFitTheSamples) {
  const TemporaryFolder folder;
  SampleInfo info;
  info.spec.input = {DType::kF32, Shape{2}, Layout::row_major()};
  info.spec.target = {DType::kF32, Shape{1}, Layout::row_major()};
  for (const data::TableColumns& columns :
       {data::TableColumns{{"a", "b", "c"}, 3, {3}}, data::TableColumns{{"a", "b", "c"}, 3, {-1}},
        data::TableColumns{{"a", "b"}, 3, {0}}, data::TableColumns{{}, 4, {1, 1}},
        data::TableColumns{{}, int64_t{1} << 62, {1}}}) {
    info.columns = columns;
    write_sample_info(folder.path(), info);
    EXPECT_THROW(read_sample_info(folder.path(), {}), DataError) << columns.count;
  }
}

// Runs of earlier versions have no such file.
TEST(SampleInfo, IsReadFromTheDataIfThereIsNoFile) {
  const TemporaryFolder folder;
  const Config config = parse_config(
      "model { zoo { name: 'mlp' } } batch { global: 4 } train { epochs: 1 }"
      "schedule { learning_rate: 1 }"
      "data { synthetic { shape: [3, 4, 5] classes: 6 } normalize { mean: 0.5 } }",
      "test", {});
  const SampleInfo info = read_sample_info(folder.path(), config);
  EXPECT_EQ(info.spec.input.shape, (Shape{3, 4, 5}));
  EXPECT_EQ(info.spec.classes, 6);
  EXPECT_EQ(info.spec.mean, std::vector<float>{0.5F});
}

TEST(SampleInfo, DamagedFilesAreNamed) {
  const TemporaryFolder folder;
  write_sample_info(folder.path(), images());
  const std::string good = slurp(folder.path() / "samples.json");
  const auto damaged = [&](const std::string& what, const std::string& by) {
    std::string text = good;
    const size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return text.replace(at, what.size(), by);
  };
  for (const std::string& text :
       {std::string(), good.substr(0, good.size() / 2), damaged("\"u8\"", "\"u9\""),
        damaged("channels_last", "sideways"), damaged("777", "-1"), damaged("777", "1e30"),
        damaged("777", "4000000000"), damaged("\"classes\"", "\"glasses\"")}) {
    spill(folder.path() / "samples.json", text);
    try {
      read_sample_info(folder.path(), {});
      ADD_FAILURE() << "no error for " << text;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("samples.json"), std::string::npos) << error.what();
    }
  }
}

TEST(SampleInfo, TokenizerIsKept) {
  const TemporaryFolder folder;
  spill(folder.path() / "vocab.txt", "[UNK]\na\nb\n");
  SampleInfo info;
  info.spec.input = {DType::kI32, Shape{8}, Layout::row_major()};
  info.spec.target = {DType::kI32, Shape{}, Layout::row_major()};
  info.spec.classes = 2;
  info.spec.vocab_size = 3;
  TokenizerConfig config;
  config.mutable_wordpiece()->set_lowercase(false);
  info.tokenizer = data::open_tokenizer(config, folder.path(), "tokenizer");
  write_sample_info(folder.path(), info);
  std::filesystem::remove(folder.path() / "vocab.txt");
  const SampleInfo read = read_sample_info(folder.path(), {});
  EXPECT_EQ(read.spec.vocab_size, 3);
  ASSERT_NE(read.tokenizer, nullptr);
  EXPECT_EQ(read.tokenizer->identity(), info.tokenizer->identity());
  EXPECT_EQ(read.tokenizer->encode("A b"), (std::vector<int32_t>{0, 2}));

  DataConfig other;
  other.mutable_labeled_text()->mutable_tokenizer()->mutable_bpe();
  use_run_tokenizer(folder.path(), read, other);
  EXPECT_EQ(other.root(), (folder.path() / "tokenizer").string());
  EXPECT_FALSE(other.labeled_text().tokenizer().wordpiece().lowercase());
  DataConfig text;
  text.set_root("elsewhere");
  text.mutable_text();
  use_run_tokenizer(folder.path(), read, text);
  EXPECT_EQ(text.root(), "elsewhere");
  EXPECT_EQ(text.text().tokenizer().wordpiece().vocab(),
            (folder.path() / "tokenizer/vocab.txt").string());

  spill(folder.path() / "tokenizer" / "vocab.txt", "[UNK]\nb\na\n");
  try {
    read_sample_info(folder.path(), {});
    ADD_FAILURE() << "another tokenizer is accepted";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("is not the tokenizer that the run was trained with: "
                        "it is WordPiece with 3 tokens, hash "),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace trireme::train
