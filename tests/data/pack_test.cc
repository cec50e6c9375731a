#include "data/pack/pack.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "data/formats/npy_array.h"
#include "data/pack/ordered_work.h"
#include "data/pack/tar_writer.h"
#include "tests/data/exif.h"
#include "tests/data/images.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
using testing::config_of;
using ::testing::ElementsAre;
using testing::Folder;
using testing::image_of;
using testing::message;
using testing::sample;
using testing::TestImage;
using testing::values;

std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Packs twelve images in three classes.
class PackTest : public ::testing::Test {
 protected:
  PackTest() {
    for (int i = 0; i < 12; ++i) {
      const char* name = i % 3 == 0 ? "ant" : i % 3 == 1 ? "bee" : "cow";
      TestImage image = testing::smooth({24 + i, 40}, 3, i);
      folder.write(fmt::format("in/train/{}/{:02}.{}", name, i, i % 2 ? "png" : "jpg"),
                   text_of(i % 2 ? encode_png(image.view()) : encode_jpeg(image.view(), 90)));
    }
  }

  std::unique_ptr<PackSource> source(const PackImages& images = {}) const {
    return open_pack_source(config, Part::kTraining, images, {});
  }
  PackOptions options(const std::string& to = "out") const {
    return {.folder = folder.path(to), .name = "train", .shard_bytes = 8 << 10};
  }
  PackState pack_to(const std::string& to, const PackImages& images = {}) const {
    PackOptions packing = options(to);
    packing.images = images;
    return pack(*source(images), packing);
  }
  DataConfig packed(const std::string& to = "out", const std::string& more = "") const {
    DataConfig shards = config_of("webdataset { train: 'train-*.tar' } " + more);
    shards.set_root(folder.path(to));
    return shards;
  }
  // Returns the names and contents of all packed files.
  std::map<std::string, std::string> files(const std::string& to) const {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::directory_iterator(folder.path(to))) {
      if (entry.path().extension() == ".index") continue;  // contains the shard's modification time
      all[entry.path().filename().string()] = contents(entry.path());
    }
    return all;
  }

  Folder folder;
  DataConfig config = folder.config("image_folder { train: 'in/train' }");
};

TEST_F(PackTest, CopiesFilesUnchanged) {
  const auto from = source();
  const PackState state = pack_to("out");
  EXPECT_TRUE(state.done);
  EXPECT_EQ(state.samples(), 12);
  EXPECT_GT(state.shards.size(), 1u);
  EXPECT_EQ(contents(folder.path("out/classes.txt")), "ant\nbee\ncow\n");
  const std::string all = "transform { resize { size: [8, 8] } }";
  DataConfig before = config;
  before.MergeFrom(config_of(all));
  const auto a = open_dataset(before, Part::kTraining);
  const auto b = open_dataset(packed("out", all), Part::kTraining);
  ASSERT_EQ(b->size(), 12);
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(sample(*a, i), sample(*b, i)) << i;
  PackTools tools;
  const PackedSample first = from->read(0, tools);
  EXPECT_THAT(contents(folder.path("out/train-000000.tar")),
              ::testing::HasSubstr(text_of(first.bytes)));
}

TEST_F(PackTest, LimitsTheSizeOfShards) {
  for (const PackedShard& shard : pack_to("out").shards) {
    const auto bytes = fs::file_size(folder.path("out/" + shard.name));
    EXPECT_EQ(bytes, shard.bytes);
    EXPECT_LE(bytes, (8u << 10) + 1024);  // 1024 for the end-of-archive marker
    EXPECT_EQ(bytes % 512, 0u);
    EXPECT_TRUE(fs::exists(folder.path("out/" + shard.name + ".index")));
  }
  PackOptions tiny = options("tiny");
  tiny.shard_bytes = 1;  // one shard per sample
  EXPECT_EQ(pack(*source(), tiny).shards.size(), 12u);
  EXPECT_EQ(shard_pattern("train", 12, "tar"), "train-{000000..000011}.tar");
  EXPECT_EQ(shard_pattern("eval", 1, "tar"), "eval-000000.tar");
}

TEST_F(PackTest, ResultDoesNotDependOnThreads) {
  pack_to("one");
  for (const int threads : {2, 5}) {
    PackOptions many = options(fmt::format("many{}", threads));
    many.threads = threads;
    pack(*source(), many);
    EXPECT_EQ(files("one"), files(fmt::format("many{}", threads)));
  }
}

TEST_F(PackTest, ResumesAfterAStop) {
  pack_to("complete");
  for (int stop_at = 0; stop_at < 12; ++stop_at) {
    fs::remove_all(folder.path("out"));
    PackOptions stopped = options();
    int calls = 0;
    stopped.stop = [&] { return calls++ == stop_at; };
    const PackState half = pack(*source(), stopped);
    EXPECT_FALSE(half.done);
    EXPECT_LE(half.end(), stop_at);
    for (const auto& [name, bytes] : files("out")) EXPECT_FALSE(name.ends_with(".tmp")) << name;
    int64_t records = 0;
    PackOptions rest = options();
    rest.progress = [&](int64_t, int64_t) { ++records; };
    EXPECT_TRUE(pack(*source(), rest).done);
    EXPECT_EQ(records, 12 - half.end());
    EXPECT_EQ(files("out"), files("complete"));
  }
}

TEST_F(PackTest, RecreatesOnlyDamagedShards) {
  const PackState state = pack_to("out");
  const auto before = files("out");
  int64_t records = 0;
  PackOptions again = options();
  again.progress = [&](int64_t, int64_t) { ++records; };
  EXPECT_TRUE(pack(*source(), again).done);
  EXPECT_EQ(records, 0);
  const std::string last = folder.path("out/" + state.shards.back().name);
  fs::resize_file(last, 512);
  EXPECT_TRUE(pack(*source(), again).done);
  EXPECT_EQ(records, state.shards.back().samples);
  EXPECT_EQ(files("out"), before);
}

TEST_F(PackTest, RejectsOtherSettings) {
  pack_to("out");
  const std::string path = folder.path("out/train.pack.json");
  PackOptions other = options();
  other.shard_bytes = 4096;
  EXPECT_SAYS(message<ConfigError>([&] { pack(*source(), other); }),
              path +
                  ": the existing shards were packed with other settings: shard size is 4096 now "
                  "and was 8192");
  other = options();
  other.shuffle = 3;
  EXPECT_SAYS(message<ConfigError>([&] { pack(*source(), other); }),
              "shuffle is 3 now and was null");
  folder.write("in/train/cow/99.png", "another");
  EXPECT_SAYS(message<ConfigError>([&] { pack(*source(), options()); }), "identity is ");
  folder.write("out/train.pack.json", "{");
  EXPECT_SAYS(message<DataError>([&] { pack(*source(), options()); }), path + ": is damaged");
}

TEST_F(PackTest, DoesNotOverwriteOtherShards) {
  folder.write("out/train-000000.tar", "precious");
  EXPECT_SAYS(message<ConfigError>([&] { pack_to("out"); }),
              folder.path("out/train-000000.tar") + ": already exists");
  EXPECT_EQ(contents(folder.path("out/train-000000.tar")), "precious");
}

TEST_F(PackTest, ResizesLargeImages) {
  pack_to("out", {.resize = 26, .quality = 95});
  const auto dataset =
      open_dataset(packed("out", "transform { center_crop { size: [24, 38] } }"), Part::kTraining);
  const auto resizing = source({.resize = 26});
  PackTools tools;
  for (int64_t i = 0; i < 12; ++i) {
    const PackedSample small = resizing->read(i, tools);
    const PackedSample original = source()->read(i, tools);
    Decoder a, b;
    const ImageSize before = a.open(original.bytes).size;
    const ImageSize after = b.open(small.bytes).size;
    if (before.height <= 26) {
      EXPECT_EQ(small.bytes, original.bytes);
    } else {
      EXPECT_EQ(after, (ImageSize{26, 40 * 26 / before.height}));
      EXPECT_EQ(small.extension, "jpg");
    }
  }
  EXPECT_SAYS(message<ConfigError>([&] {
                open_pack_source(config_of("synthetic {}"), Part::kTraining, {.resize = 3}, {});
              }),
              "--resize: is only for images in files");
}

// Copied files keep their EXIF block; resized ones have none, and are upright.
TEST_F(PackTest, AppliesTheOrientationOfPhotographsOnce) {
  fs::remove_all(folder.path("in/train"));
  folder.write("in/train/bee/1.png", text_of(testing::with_orientation(
                                         encode_png(testing::smooth({24, 40}, 3).view()), 6)));
  const auto sizes = [&](const std::string& name, const std::string& decode) {
    return open_dataset(packed(name, decode), Part::kTraining)->spec().input.shape;
  };
  const std::string ignore = "decode { apply_exif_orientation: false }";
  pack_to("copied");
  EXPECT_EQ(sizes("copied", ""), (Shape{3, 40, 24}));
  EXPECT_EQ(sizes("copied", ignore), (Shape{3, 24, 40}));
  pack_to("resized", {.resize = 12, .quality = 95});
  EXPECT_EQ(sizes("resized", ""), (Shape{3, 20, 12}));
  EXPECT_EQ(sizes("resized", ignore), (Shape{3, 20, 12}));
  pack_to("stored", {.resize = 12, .quality = 95, .apply_exif_orientation = false});
  EXPECT_EQ(sizes("stored", ignore), (Shape{3, 12, 20}));
}

TEST_F(PackTest, ShufflesBySeed) {
  PackOptions shuffled = options();
  shuffled.shuffle = 7;
  shuffled.samples = 9;
  EXPECT_EQ(pack(*source(), shuffled).samples(), 9);
  std::vector<int32_t> labels;
  const auto dataset =
      open_dataset(packed("out",
                          "transform { resize { size: 8 } } transform { center_crop { "
                          "size: 8 } }"),
                   Part::kTraining);
  for (int64_t i = 0; i < 9; ++i) labels.push_back(sample(*dataset, i).label());
  EXPECT_FALSE(std::ranges::is_sorted(labels));
}

TEST_F(PackTest, BadRecordsAreErrorsOrSkipped) {
  folder.write("in/train/bee/13.jpg", "not an image");
  const std::string path = folder.path("in/train/bee/13.jpg");
  EXPECT_SAYS(message<DataError>([&] { pack_to("out"); }),
              path + ": is not a JPEG, PNG or .npy file");
  PackOptions skipping = options("skip");
  skipping.bad_limit = 1;
  const PackState state = pack(*source(), skipping);
  EXPECT_EQ(state.samples(), 12);
  EXPECT_EQ(state.bad().count, 1);
  EXPECT_THAT(state.bad().first, ElementsAre(::testing::HasSubstr(path)));
  EXPECT_EQ(pack(*source(), skipping).bad().count, 1);  // from the saved state
  skipping.bad_limit = 0;
  fs::remove_all(folder.path("skip"));
  EXPECT_SAYS(message<DataError>([&] { pack(*source(), skipping); }),
              "1 bad records, more than data.max_bad_records, 0");
}

// Limits the length of files, which has the same effect as a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  sighandler_t handler_;
  rlimit before_{};
};

TEST_F(PackTest, ResumesAfterAFullDisk) {
  pack_to("complete");
  {
    const FullDisk full(7000);
    EXPECT_SAYS(message<Error>([&] { pack_to("out"); }),
                folder.path("out/train-000000.tar") + ": cannot be written: File too large");
  }
  std::vector<std::string> left;
  for (const auto& [name, bytes] : files("out")) left.push_back(name);
  EXPECT_THAT(left, ElementsAre(".lock", "train.pack.json"));
  PackOptions half = options();
  half.stop = [&, calls = 0]() mutable { return calls++ == 10; };
  ASSERT_GT(pack(*source(), half).shards.size(), 0u);
  const auto before = files("out");
  {
    const FullDisk full(100);
    EXPECT_SAYS(message<Error>([&] { pack_to("out"); }), "cannot be written");
  }
  EXPECT_EQ(files("out"), before);
  EXPECT_TRUE(pack_to("out").done);
  EXPECT_EQ(files("out"), files("complete"));
}

// Both wrote to the same files and exited with 0.
TEST_F(PackTest, OneProcessAtATimePacksIntoAFolder) {
  fs::create_directories(folder.path("out"));
  {
    const FolderLock other(folder.path("out"), "folder", "");
    EXPECT_SAYS(message<Error>([&] { pack_to("out"); }),
                fmt::format("folder {} is in use by process {} on ", folder.path("out"), getpid()));
  }
  EXPECT_TRUE(pack_to("out").done);
}

// Killed between the first shard and the state, packing could not be continued.
TEST_F(PackTest, ContinuesIfKilledAtAnyTime) {
  pack_to("complete");
  const fs::path state = folder.path("out/train.pack.json");
  std::set<std::string> states;  // those on disk while a shard is written
  PackOptions observed = options();
  observed.progress = [&](int64_t, int64_t) {
    states.insert(fs::exists(state) ? contents(state) : "");
  };
  pack(*source(), observed);
  ASSERT_GT(states.size(), 1u);
  for (const std::string& before : states) {
    fs::remove(state);
    if (!before.empty()) folder.write("out/train.pack.json", before);
    EXPECT_TRUE(pack_to("out").done);
    EXPECT_EQ(files("out"), files("complete"));
  }
}

TEST_F(PackTest, NeverReplacesOtherClassNames) {
  folder.write("out/classes.txt", "mine\n");
  EXPECT_SAYS(message<ConfigError>([&] { pack_to("out"); }),
              "out/classes.txt: names other classes than those that are packed now");
  EXPECT_EQ(contents(folder.path("out/classes.txt")), "mine\n");
}

TEST_F(PackTest, PacksTableRowsAsArrays) {
  folder.write("rows.csv", "1,2,3,4,0\n5,6,7,8,2\n-1,0,1,0.5,1\n");
  config = folder.config("csv { train_file: 'rows.csv' shape: [1, 2, 2] scale: 0.5 }");
  EXPECT_EQ(pack_to("out").samples(), 3);
  const auto dataset = open_dataset(packed(), Part::kTraining);
  EXPECT_EQ(dataset->spec().input, (TensorSpec{DType::kF32, Shape{1, 2, 2}, {}}));
  EXPECT_EQ(dataset->spec().classes, 3);
  EXPECT_FLOAT_EQ(dataset->spec().scale, 1);
  EXPECT_THAT(values<float>(sample(*dataset, 1).input), ElementsAre(2.5, 3, 3.5, 4));
  EXPECT_EQ(sample(*dataset, 1).label(), 2);
  EXPECT_SAYS(dataset->where(2), "train-000000.tar: 000000002.npy");
  EXPECT_SAYS(testing::config_error(packed("out", "transform { resize { size: 8 } }")),
              "holds arrays; transform, decode and cache are only for images");
}

TEST_F(PackTest, PacksU8ImagesAsPng) {
  for (const char* shape : {"[1, 5, 4]", "[3, 5, 4]"}) {
    config = config_of(fmt::format("synthetic {{ shape: {} count: 20 }}", shape));
    const std::string to = std::string("out") + shape[1];
    pack_to(to);
    const auto a = open_dataset(config, Part::kTraining);
    const auto b = open_dataset(packed(to, fmt::format("decode {{ channels: {} }}", shape[1])),
                                Part::kTraining);
    ASSERT_EQ(b->size(), 20);
    EXPECT_EQ(a->spec().input, b->spec().input);
    for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(sample(*a, i), sample(*b, i));
  }
  config = config_of("synthetic { shape: [7] count: 20 }");
  pack_to("rows");
  const auto a = open_dataset(config, Part::kTraining);
  const auto b = open_dataset(packed("rows"), Part::kTraining);
  EXPECT_EQ(a->spec().input, b->spec().input);
  EXPECT_FLOAT_EQ(b->spec().scale, 1.0F / 255);
  for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(sample(*a, i), sample(*b, i));
}

TEST_F(PackTest, RejectsSamplesWithoutLabelsAndHeldOutSamples) {
  folder.write("rows.csv", "1,2,0\n4,5,1\n");
  config = folder.config("csv { train_file: 'rows.csv' regression: true }");
  EXPECT_SAYS(message<ConfigError>([&] { source(); }), "only samples with class labels");
  folder.write("a.txt", "to be or not");
  config = folder.config("text { train_file: 'a.txt' length: 2 }");
  EXPECT_SAYS(message<ConfigError>([&] { source(); }), "only samples with class labels");
  folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n");
  folder.write("t.jsonl", "{\"text\":\"a\",\"label\":0}\n{\"text\":\"a\",\"label\":1}\n");
  config = folder.config(
      "labeled_text { train: 't.jsonl' eval: 't.jsonl' tokenizer { wordpiece {} } length: 4 }");
  EXPECT_SAYS(message<ConfigError>([&] { source(); }), "texts with labels cannot be packed");
  config = folder.config("csv { train_file: 'rows.csv' } holdout: 0.5");
  EXPECT_SAYS(message<ConfigError>([&] { open_pack_source(config, Part::kEvaluation, {}, {}); }),
              "data.holdout: selects evaluation samples");
  EXPECT_EQ(source()->size(), 2);  // data.holdout is ignored
}

std::string array_of(std::vector<float> numbers) {
  const std::vector<int64_t> shape{std::ssize(numbers)};
  return text_of(encode_npy(
      DType::kF32, shape,
      {reinterpret_cast<const uint8_t*>(numbers.data()), numbers.size() * sizeof(float)}));
}

void write_shard(const std::string& path,
                 const std::vector<std::pair<std::string, std::string>>& members) {
  fs::create_directories(fs::path(path).parent_path());
  TarWriter tar(path);
  for (const auto& [name, bytes] : members) {
    tar.add(name, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  }
  tar.finish();
}

TEST_F(PackTest, ArraysOfAShardMustHaveTheSameShape) {
  write_shard(folder.path("out/train-0.tar"), {{"a.npy", array_of({1, 2})},
                                               {"a.cls", "0"},
                                               {"b.npy", array_of({1, 2, 3})},
                                               {"b.cls", "1"},
                                               {"c.cls", "1"},
                                               {"c.npy", array_of({1, 2}).substr(0, 130)}});
  const auto dataset = open_dataset(packed(), Part::kTraining);
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_THAT(values<float>(sample(*dataset, 0).input), ElementsAre(1, 2));
  EXPECT_SAYS(message<DataError>([&] { sample(*dataset, 1); }), "b.npy: is f32 [3], but the first");
  EXPECT_SAYS(message<DataError>([&] { sample(*dataset, 2); }), "c.npy: is truncated");
}

TEST_F(PackTest, IgnoresArraysOfSamplesWithAnImage) {
  TestImage image = testing::noisy({5, 4}, 3);
  const std::string png = text_of(encode_png(image.view()));
  const std::string array = array_of({1, 2});
  write_shard(folder.path("out/train-0.tar"), {{"a.cls", "0"},
                                               {"a.npy", array},
                                               {"a.png", png},  // sorted by name
                                               {"b.png", png},
                                               {"b.npy", array},
                                               {"b.cls", "1"},  // reversed
                                               {"c.cls", "1"},
                                               {"c.png", png},
                                               {"c.npy", array}});
  const auto dataset = open_dataset(packed(), Part::kTraining);
  ASSERT_EQ(dataset->size(), 3);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(image_of(*dataset, {i, 0}), image);
    EXPECT_SAYS(dataset->where(i), ".png");
  }
}

TEST(TarWriterTest, ThrowsForLongNamesAndMissingFolders) {
  const Folder folder;
  TarWriter tar(folder.path("x.tar"));
  EXPECT_SAYS(message<Error>([&] { tar.add(std::string(101, 'x'), {}); }),
              "does not fit into a tar file");
  EXPECT_SAYS(message<Error>([&] { TarWriter(folder.path("no/x.tar")); }),
              "no/x.tar: cannot be created: No such file or directory");
  EXPECT_FALSE(fs::exists(folder.path("x.tar")));
}

TEST(OrderedWorkTest, ReturnsResultsInOrderAndRethrowsErrors) {
  for (const int threads : {1, 3, 8}) {
    OrderedWork<int64_t> work(threads, 4, 10, 500, [](int, int64_t number) {
      if (number % 50 == 7) throw Error("seven");
      return number * number;
    });
    for (int64_t i = 10; i < 300; ++i) {  // the destructor abandons the rest
      if (i % 50 == 7) {
        EXPECT_THROW(work.next(), Error);
      } else {
        EXPECT_EQ(work.next(), i * i);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::data
