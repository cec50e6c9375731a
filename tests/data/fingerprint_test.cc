#include "data/fingerprint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "data/formats/npy_array.h"
#include "tests/data/files.h"
#include "tests/data/images.h"
#include "tests/data/tars.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

data::Fingerprint of(const Folder& folder, const std::string& config,
                     data::Part part = data::Part::kTraining) {
  return data::fingerprint_of(*data::open_dataset(folder.config(config), part));
}

// Rows "i, 7 i % 11, i % 3".
std::vector<std::string> rows(int count) {
  std::vector<std::string> lines;
  for (int i = 0; i < count; ++i) {
    lines.push_back(fmt::format("{},{},{}\n", i, i * 7 % 11, i % 3));
  }
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

constexpr const char* kCsv = "csv { train_file: 'x.csv' eval_file: 'y.csv' classes: 3 } ";

class CsvFingerprint : public ::testing::Test {
 protected:
  CsvFingerprint() {
    write("x.csv", rows(300));
    write("y.csv", rows(30));
    before = of(folder, kCsv);
  }
  void write(const std::string& name, const std::vector<std::string>& lines) const {
    folder.write(name, joined(lines));
  }
  Folder folder;
  data::Fingerprint before;
};

TEST_F(CsvFingerprint, CoversEverySample) {
  EXPECT_EQ(before.samples, 300);
  EXPECT_EQ(before.classes, 3);
  std::vector<std::string> lines = rows(300);
  lines[150] = "150,4,1\n";  // was 5, 0
  write("x.csv", lines);
  const data::Fingerprint both = of(folder, kCsv);
  EXPECT_NE(both.checksums.inputs, before.checksums.inputs);
  EXPECT_NE(both.checksums.targets, before.checksums.targets);

  lines[150] = "150,5,1\n";
  write("x.csv", lines);
  const data::Fingerprint label = of(folder, kCsv);
  EXPECT_EQ(label.checksums.inputs, before.checksums.inputs);
  EXPECT_NE(label.checksums.targets, before.checksums.targets);

  lines = rows(300);
  std::ranges::reverse(lines);
  write("x.csv", lines);
  const data::Fingerprint reversed = of(folder, kCsv);
  EXPECT_NE(reversed.checksums.inputs, before.checksums.inputs);
  EXPECT_NE(reversed.checksums.targets, before.checksums.targets);

  write("x.csv", rows(299));
  EXPECT_EQ(of(folder, kCsv).samples, 299);
}

TEST_F(CsvFingerprint, IsIndependentOfPathTimeAndCompression) {
  const Folder other;
  other.write("x.csv.gz", gzip(joined(rows(300))));
  other.write("y.csv", "0,0,0\n");
  EXPECT_EQ(of(other, kCsv), before);
  fs::last_write_time(folder.path("x.csv"), fs::file_time_type());
  EXPECT_EQ(of(folder, kCsv), before);
}

TEST_F(CsvFingerprint, IsIndependentOfProcessing) {
  for (const char* more : {"normalize { mean: 1 std: 2 }", "mix { mixup_alpha: 1 }",
                           "shuffle: false threads: 3 prefetch: 9", "on_bad_record: SKIP"}) {
    EXPECT_EQ(of(folder, std::string(kCsv) + more), before) << more;
  }
}

TEST_F(CsvFingerprint, CoversEvaluationSamplesSeparately) {
  const data::Fingerprint evaluation = of(folder, kCsv, data::Part::kEvaluation);
  EXPECT_EQ(evaluation.samples, 30);
  write("y.csv", rows(31));
  EXPECT_NE(of(folder, kCsv, data::Part::kEvaluation), evaluation);
  EXPECT_EQ(of(folder, kCsv), before);
}

TEST_F(CsvFingerprint, CoversTheChoiceOfHeldOutSamples) {
  const std::string csv = "csv { train_file: 'x.csv' classes: 3 } holdout: 0.2 ";
  for (const data::Part part : {data::Part::kTraining, data::Part::kEvaluation}) {
    const data::Fingerprint first = of(folder, csv, part);
    EXPECT_EQ(of(folder, csv, part), first);
    const data::Fingerprint second = of(folder, csv + "holdout_seed: 2", part);
    EXPECT_EQ(second.samples, first.samples);
    EXPECT_NE(second.checksums, first.checksums);
  }
}

TEST(Fingerprints, CoverEveryByteOfImages) {
  const Folder folder;
  const std::string config = "idx {} transform { horizontal_flip {} }";
  const auto write = [&](const std::string& images, const std::string& labels) {
    folder.write("train-images-idx3-ubyte", idx({5, 2, 2}, images));
    folder.write("train-labels-idx1-ubyte", idx({5}, labels));
    return of(folder, config);
  };
  const std::string labels("\0\1\2\3\4", 5);
  const data::Fingerprint before = write(pixels(20), labels);
  EXPECT_EQ(of(folder, "idx {} transform { random_crop { size: 2 padding: 1 } }"), before);
  EXPECT_EQ(write(pixels(20), std::string("\0\1\3\2\4", 5)).checksums.inputs,
            before.checksums.inputs);
  EXPECT_NE(write(pixels(20), std::string("\0\1\3\2\4", 5)), before);
  EXPECT_NE(write(std::string(20, '\0'), labels), before);
  EXPECT_NE(of(folder, "idx { classes: 12 }"), of(folder, config));
}

std::string npy_header(int64_t rows, int64_t columns) {
  const std::vector<uint8_t> file = data::encode_npy(DType::kF32, std::vector{rows, columns}, {});
  return {file.begin(), file.end()};
}

std::string npy_labels(const std::vector<uint8_t>& labels) {
  const std::vector<uint8_t> file =
      data::encode_npy(DType::kU8, std::vector{std::ssize(labels)}, labels);
  return {file.begin(), file.end()};
}

class NpyFingerprint : public ::testing::Test {
 protected:
  static constexpr int64_t kColumns = 4096;  // 16 KiB a row

  void write(int64_t count) {
    const std::string header = npy_header(count, kColumns);
    header_bytes = std::ssize(header);
    folder.write("x.npy", header);  // followed by zeros
    fs::resize_file(folder.path("x.npy"), header.size() + offset(count));
    folder.write("y.npy", npy_labels(std::vector<uint8_t>(static_cast<size_t>(count), 1)));
  }
  static uint64_t offset(int64_t row) { return static_cast<uint64_t>(row * kColumns * 4); }
  void change(int64_t row) const {
    std::fstream file(folder.path("x.npy"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(header_bytes + static_cast<int64_t>(offset(row)) + 400);
    file.put('\1');
  }
  data::Fingerprint now() const {
    return of(folder, "npy { train_inputs: 'x.npy' train_targets: 'y.npy' }");
  }

  Folder folder;
  int64_t header_bytes = 0;
};

TEST_F(NpyFingerprint, CoversEveryRowOfASmallFile) {
  write(200);
  data::Fingerprint last = now();
  for (const int64_t row : {0, 77, 199}) {
    change(row);
    EXPECT_NE(now().checksums.inputs, last.checksums.inputs) << row;
    last = now();
  }
}

// Above 64 MiB only some rows are read, as docs/data.md says.
TEST_F(NpyFingerprint, CoversAllTargetsAndSomeRowsOfALargeFile) {
  constexpr int64_t kRows = 63 * 100 + 1;
  write(kRows);
  const data::Fingerprint before = now();
  change(50);
  EXPECT_EQ(now(), before);
  for (const int64_t row : {int64_t{0}, int64_t{100}, kRows - 1}) {
    const data::Fingerprint last = now();
    change(row);
    EXPECT_NE(now().checksums.inputs, last.checksums.inputs) << row;
  }
  std::vector<uint8_t> labels(kRows, 1);
  labels[50] = 0;
  folder.write("y.npy", npy_labels(labels));
  EXPECT_NE(now().checksums.targets, before.checksums.targets);
}

TEST(Fingerprints, CoverSomeTokensOfLargeFiles) {
  const Folder folder;
  folder.write("a.bin", "");
  constexpr int64_t kTokens = 40'000'000;
  fs::resize_file(folder.path("a.bin"), 2 * kTokens);
  const std::string config = "tokens { train: 'a.bin' length: 1000 vocab_size: 9 }";
  const auto change = [&](int64_t token) {
    std::fstream file(folder.path("a.bin"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(2 * token);
    file.put('\1');
  };
  const data::Fingerprint before = of(folder, config);
  change(20'000'500);
  EXPECT_EQ(of(folder, config), before);
  change(3);
  const data::Fingerprint first = of(folder, config);
  EXPECT_NE(first, before);
  change((before.samples - 1) * 1000);
  EXPECT_NE(of(folder, config), first);
}

TEST(Fingerprints, CoverEveryCharacterOfATextAndItsVocabulary) {
  const Folder folder;
  const std::string config = "text { train_file: 'a.txt' length: 4 } holdout: 0.2";
  folder.write("a.txt", "to be or not to be, that is");
  const data::Fingerprint before = of(folder, config);
  folder.write("a.txt", "to be or not to bo, that is");
  EXPECT_NE(of(folder, config), before);
  // The same structure with other characters.
  folder.write("a.txt", "tp be pr npt tp be, that is");
  EXPECT_NE(of(folder, config), before);
}

std::string png(uint32_t seed) {
  const std::vector<uint8_t> bytes = data::encode_png(noisy({4, 5}, 3, seed).view());
  return {bytes.begin(), bytes.end()};
}

class FolderFingerprint : public ::testing::Test {
 protected:
  FolderFingerprint() {
    for (uint32_t i = 0; i < 6; ++i) {
      folder.write(fmt::format("train/{}/{}.png", i % 2 == 0 ? "cat" : "dog", i), png(i));
    }
    before = now();
  }
  data::Fingerprint now(const std::string& more = "") const {
    return of(folder, "image_folder {} " + more);
  }
  void move(const std::string& from, const std::string& to) const {
    fs::rename(folder.path("train/" + from), folder.path("train/" + to));
  }
  Folder folder;
  data::Fingerprint before;
};

TEST_F(FolderFingerprint, CoversNamesClassesAndContents) {
  const std::vector<std::pair<std::string, std::string>> moves = {
      {"cat/2.png", "cat/9.png"}, {"cat/0.png", "dog/0.png"}, {"cat", "eel"}};
  for (const auto& [from, to] : moves) {
    move(from, to);
    EXPECT_NE(now(), before) << from;
    move(to, from);
    EXPECT_EQ(now(), before) << from;
  }
  folder.write("train/dog/3.png", png(33));
  const data::Fingerprint after = now();
  EXPECT_NE(after.checksums.inputs, before.checksums.inputs);
  EXPECT_EQ(after.checksums.targets, before.checksums.targets);
}

TEST_F(FolderFingerprint, IsIndependentOfPathTransformsAndTime) {
  const Folder other;
  fs::copy(folder.path(), other.path(), fs::copy_options::recursive);
  EXPECT_EQ(of(other, "image_folder {}"), before);
  folder.write("train/dog/README", "no image");
  EXPECT_EQ(now("transform { random_resized_crop { size: 3 } } transform { color_jitter { hue: 0.1 "
                "} } decode { channels: 1 } mix { cutmix_alpha: 1 }"),
            before);
}

TEST_F(FolderFingerprint, AnUnreadableImageIsNotAnError) {
  const auto dataset = data::open_dataset(folder.config("image_folder {}"), data::Part::kTraining);
  EXPECT_EQ(data::fingerprint_of(*dataset), before);
  fs::remove(folder.path("train/dog/5.png"));
  EXPECT_NE(data::fingerprint_of(*dataset), before);
}

class ShardFingerprint : public ::testing::Test {
 protected:
  struct Record {
    uint32_t seed;
    int label;
  };
  // Writes shards of `shard` records each.
  data::Fingerprint write(const std::vector<Record>& all, size_t shard) const {
    fs::remove_all(folder.path("tar"));
    for (size_t first = 0; first < all.size(); first += shard) {
      std::string tar;
      for (size_t i = first; i < std::min(all.size(), first + shard); ++i) {
        const auto name = fmt::format("{:03}", all[i].seed % 100);
        tar += member(name + ".cls", std::to_string(all[i].label)) +
               member(name + ".png", png(all[i].seed));
      }
      folder.write(fmt::format("tar/{}.tar", first), tar + tar_end());
    }
    return of(folder, "webdataset { train: 'tar/*.tar' classes: 4 }");
  }
  const std::vector<Record> records{{1, 0}, {2, 1}, {3, 2}, {4, 3}, {5, 0}, {6, 1}};
  Folder folder;
};

TEST_F(ShardFingerprint, CoversOrderLabelsNamesAndContentsButNotShards) {
  const data::Fingerprint before = write(records, 2);
  EXPECT_EQ(before.samples, 6);
  EXPECT_EQ(write(records, 3), before);
  std::vector<Record> changed = records;
  changed[4].label = 2;
  const data::Fingerprint label = write(changed, 2);
  EXPECT_EQ(label.checksums.inputs, before.checksums.inputs);
  EXPECT_NE(label.checksums.targets, before.checksums.targets);
  changed = records;
  changed[4].seed = 105;  // has the same name
  EXPECT_NE(write(changed, 2).checksums.inputs, before.checksums.inputs);
  changed = records;
  std::ranges::reverse(changed);
  EXPECT_NE(write(changed, 2), before);
}

TEST(Fingerprints, CoverTheParametersOfSyntheticSamples) {
  const Folder folder;
  const auto with = [&](const std::string& more) {
    return of(folder, "synthetic { shape: [1, 8, 8] count: 100000000 " + more + "}");
  };
  const data::Fingerprint before = with("");
  EXPECT_EQ(with("eval_count: 7"), before);
  for (const char* more : {"seed: 2", "noise: 0.6", "classes: 9"}) EXPECT_NE(with(more), before);
}

TEST(Fingerprints, CoverTextsTheirLabelsAndTheTokenizer) {
  const Folder folder;
  folder.write("vocab.txt", "[UNK]\na\nb\n");
  const auto with = [&](const std::string& table, const std::string& options = "") {
    folder.write("x.csv", "text,label\n" + table);
    return of(folder,
              "labeled_text { train: 'x.csv' tokenizer { wordpiece { " + options + " } } }");
  };
  const std::string table = "a b,1\nb,2\n";
  const data::Fingerprint before = with(table);
  EXPECT_EQ(before.samples, 2);
  EXPECT_EQ(before.classes, 2);
  EXPECT_EQ(with(table), before);
  const data::Fingerprint text = with("a b,1\na,2\n");
  EXPECT_NE(text.checksums.inputs, before.checksums.inputs);
  EXPECT_EQ(text.checksums.targets, before.checksums.targets);
  EXPECT_NE(with("a b,2\nb,1\n").checksums.targets, before.checksums.targets);
  EXPECT_NE(with("a b,1\nb,3\n").checksums.targets, before.checksums.targets);
  EXPECT_NE(with(table, "lowercase: false").tokenizer, before.tokenizer);
  folder.write("vocab.txt", "[UNK]\na\nb\nc\n");
  EXPECT_NE(with(table).tokenizer, before.tokenizer);
}

TEST(CheckedSamples, AreAllOrEvenlySpaced) {
  EXPECT_EQ(data::CheckedSamples(1, 0)[0], 0);
  EXPECT_EQ(data::CheckedSamples(64 << 10, 1 << 10).count(), 64 << 10);
  EXPECT_EQ(data::CheckedSamples((64 << 10) + 1, 1 << 10).count(), 64);
  const data::CheckedSamples spread(int64_t{1} << 40, size_t{1} << 31);
  EXPECT_EQ(spread[0], 0);
  EXPECT_EQ(spread[63], (int64_t{1} << 40) - 1);
  for (int64_t i = 1; i < 64; ++i) EXPECT_GT(spread[i], spread[i - 1]);
}

}  // namespace
}  // namespace trireme::testing
