#include "data/pack/pack_tokens.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>

#include "tests/data/files.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::Folder;
using testing::message;
using testing::sample;

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class T>
std::string bytes_of(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

class PackTokensTest : public ::testing::Test {
 protected:
  static constexpr int64_t kShardBytes = 1024 + 2 * 100;  // 100 tokens of 16 bits

  PackOptions options(const std::string& to, const char* name = "train") const {
    return {.folder = folder.path(to), .name = name, .shard_bytes = kShardBytes};
  }
  PackState pack_to(const std::string& to, const DataConfig& config,
                    Part part = Part::kTraining) const {
    return pack_tokens(*open_pack_tokens(config, part),
                       options(to, part == Part::kTraining ? "train" : "eval"));
  }
  DataConfig packed(const std::string& tokens, const std::string& more = "") const {
    DataConfig config = folder.config("tokens { train: 'train-*.bin' " + tokens + "} " + more);
    config.set_root(folder.path("out"));
    return config;
  }
  std::map<std::string, std::string> files(const std::string& to) const {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::directory_iterator(folder.path(to))) {
      all[entry.path().filename().string()] = contents(entry.path());
    }
    return all;
  }
  static void expect_same_samples(const DataConfig& a, const DataConfig& b, Part part) {
    const auto of_a = open_dataset(a, part), of_b = open_dataset(b, part);
    ASSERT_EQ(of_b->size(), of_a->size());
    for (int64_t i = 0; i < of_a->size(); ++i) EXPECT_EQ(sample(*of_b, i), sample(*of_a, i)) << i;
    EXPECT_EQ(of_b->class_names(), of_a->class_names());
    EXPECT_EQ(of_b->spec().classes, of_a->spec().classes);
    EXPECT_EQ(of_b->spec().bytes_per_token, of_a->spec().bytes_per_token);
  }

  Folder folder;
};

TEST_F(PackTokensTest, KeepsTextAndItsCharacters) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += fmt::format("{} €\tä {}\n", i, i * i);
  folder.write("text.txt", text + "\\ \x01");
  const std::string eval = "eval: 'eval-*.bin' length: 7 vocab_file: 'vocab.txt'";
  for (const char* vocabulary : {"CHARACTERS", "BYTES"}) {
    const DataConfig config = folder.config(fmt::format(
        "text {{ train_file: 'text.txt' length: 7 vocabulary: {} }} holdout: 0.2", vocabulary));
    for (const Part part : {Part::kTraining, Part::kEvaluation}) {
      PackOptions whole = options("out", part == Part::kTraining ? "train" : "eval");
      whole.shard_bytes = 1 << 20;
      EXPECT_TRUE(pack_tokens(*open_pack_tokens(config, part), whole).done);
    }
    for (const Part part : {Part::kTraining, Part::kEvaluation}) {
      expect_same_samples(config, packed(eval), part);
    }
    fs::remove_all(folder.path("out"));
  }
}

// Killed between the first shard and the state, packing could not be continued.
TEST_F(PackTokensTest, ContinuesIfKilledAtAnyTime) {
  folder.write("text.txt", std::string(120, 'a') + std::string(130, 'b'));
  const DataConfig config = folder.config("text { train_file: 'text.txt' length: 3 }");
  pack_to("complete", config);
  const fs::path state = folder.path("out/train.pack.json");
  // What is on disk when a shard is complete and its state is not.
  std::vector<std::string> states;
  PackOptions observed = options("out");
  observed.progress = [&](int64_t, int64_t) {
    states.push_back(fs::exists(state) ? contents(state) : "");
  };
  pack_tokens(*open_pack_tokens(config, Part::kTraining), observed);
  ASSERT_EQ(states.size(), 3u);
  for (const std::string& before : states) {
    fs::remove(state);
    if (!before.empty()) folder.write("out/train.pack.json", before);
    EXPECT_TRUE(pack_to("out", config).done);
    EXPECT_EQ(files("out"), files("complete"));
  }
}

TEST_F(PackTokensTest, KeepsTheTokenizer) {
  folder.write("vocab.txt", "[UNK]\na\nb\n##c\n");
  folder.write("text.txt", "a bc b\nx a bc\n");
  const DataConfig config =
      folder.config("text { train_file: 'text.txt' length: 3 tokenizer { wordpiece {} } }");
  const auto source = open_pack_tokens(config, Part::kTraining);
  EXPECT_EQ(source->vocab_size(), 4);
  EXPECT_TRUE(pack_tokens(*source, options("out")).done);
  fs::remove(folder.path("vocab.txt"));
  const auto dataset =
      open_dataset(packed("length: 3 tokenizer { wordpiece {} }"), Part::kTraining);
  EXPECT_EQ(dataset->size(), 2);
  EXPECT_EQ(dataset->spec().classes, 4);
  EXPECT_EQ(dataset->tokenizer()->identity(), source->tokenizer()->identity());
  EXPECT_GT(dataset->spec().bytes_per_token, 1);

  EXPECT_SAYS(message<ConfigError>([&] {
                open_dataset(packed("length: 3 vocab_size: 5 tokenizer { wordpiece {} }"),
                             Part::kTraining);
              }),
              "data.tokens.vocab_size: is 5, but the tokenizer is WordPiece with 4 tokens");
  EXPECT_SAYS(message<ConfigError>([&] {
                open_dataset(packed("length: 3 vocab_file: 'vocab.txt' tokenizer { wordpiece {} }"),
                             Part::kTraining);
              }),
              "data.tokens.vocab_file: cannot be combined with data.tokens.tokenizer");
  // Another tokenizer in the same folder.
  folder.write("vocab.txt", "[UNK]\na\nb\n##c\nx\n");
  EXPECT_SAYS(message<ConfigError>([&] { pack_to("out", config, Part::kTraining); }),
              "out/train.pack.json: the existing shards were packed with other settings");
  EXPECT_SAYS(message<ConfigError>([&] {
                pack_tokens(*open_pack_tokens(config, Part::kTraining), options("out", "other"));
              }),
              "vocab.txt: names other tokens than those that are packed now");
}

TEST_F(PackTokensTest, WritesTheFormatOfLlmC) {
  folder.write("text.txt", "abcabd");
  pack_to("out", folder.config("text { train_file: 'text.txt' }"));
  std::vector<int32_t> header(256);
  header[0] = 20240520, header[1] = 1, header[2] = 6;
  EXPECT_EQ(contents(folder.path("out/train-000000.bin")),
            bytes_of(header) + bytes_of<uint16_t>({0, 1, 2, 0, 1, 3}));
  EXPECT_EQ(contents(folder.path("out/vocab.txt")), "a\nb\nc\nd\n");

  folder.write("large.bin", bytes_of<uint32_t>({70000, 3}));
  pack_to("large", folder.config("tokens { train: 'large.bin' kind: UINT32 }"));
  header[0] = 20240801, header[1] = 7, header[2] = 2;
  EXPECT_EQ(contents(folder.path("large/train-000000.bin")),
            bytes_of(header) + bytes_of<uint32_t>({70000, 3}));
  EXPECT_FALSE(fs::exists(folder.path("large/vocab.txt")));
}

TEST_F(PackTokensTest, DistributesTokensOverShards) {
  std::vector<uint16_t> all;
  for (int i = 0; i < 250; ++i) all.push_back(i * i % 300);
  const auto piece = [&](int begin, int end) {
    return bytes_of(std::vector<uint16_t>(all.begin() + begin, all.begin() + end));
  };
  folder.write("a.bin", piece(0, 130));
  folder.write("b.bin", piece(130, 131));
  folder.write("c.bin", piece(131, 250));
  const DataConfig config = folder.config("tokens { train: '?.bin' vocab_size: 300 } holdout: 0.1");
  const PackState state = pack_to("out", config);
  EXPECT_EQ(state.samples(), 250);
  ASSERT_EQ(state.shards.size(), 3u);
  std::string tokens;
  for (const PackedShard& shard : state.shards) {
    const std::string bytes = contents(folder.path("out/" + shard.name));
    EXPECT_EQ(bytes.size(), shard.bytes);
    EXPECT_LE(bytes.size(), size_t{kShardBytes});
    tokens += bytes.substr(1024);
  }
  EXPECT_EQ(tokens, piece(0, 250));
  EXPECT_SAYS(message<ConfigError>([&] { pack_to("out", config, Part::kEvaluation); }),
              "data.holdout: selects evaluation samples when the data is opened");
}

TEST_F(PackTokensTest, ResumesAfterAStop) {
  folder.write("text.txt", std::string(350, 'a') + "b");
  const DataConfig config = folder.config("text { train_file: 'text.txt' }");
  pack_to("complete", config);
  for (int stop_at = 0; stop_at < 4; ++stop_at) {
    fs::remove_all(folder.path("out"));
    const auto source = open_pack_tokens(config, Part::kTraining);
    PackOptions stopped = options("out");
    int calls = 0;
    stopped.stop = [&] { return calls++ == stop_at; };
    const PackState half = pack_tokens(*source, stopped);
    EXPECT_FALSE(half.done);
    EXPECT_EQ(half.end(), 100 * stop_at);
    EXPECT_EQ(std::ssize(files("out")), stop_at + 3);  // lock, state, vocabulary
    EXPECT_TRUE(pack_tokens(*source, options("out")).done);
    EXPECT_EQ(files("out"), files("complete"));
  }
}

TEST_F(PackTokensTest, RejectsBadInput) {
  const auto error = [&](const std::string& config, Part part = Part::kTraining) {
    return message<Error>([&] { pack_to("out", folder.config(config), part); });
  };
  folder.write("text.txt", "abc\nabd");
  folder.write("other.txt", "abc\nabx");
  folder.write("binary.txt", "ab\xff");
  folder.write("empty", "");
  folder.write("a.bin", bytes_of<uint16_t>({1, 2, 300, 4}));
  EXPECT_SAYS(error("text { train_file: 'text.txt' eval_file: 'other.txt' }", Part::kEvaluation),
              "other.txt: line 2: 'x' (U+0078) does not occur in");
  EXPECT_SAYS(error("text { train_file: 'binary.txt' }"), "binary.txt: is not UTF-8 at byte 2");
  EXPECT_SAYS(error("text { train_file: 'empty' }"), "fewer than 2 different characters");
  EXPECT_SAYS(error("text { train_file: 'empty' vocabulary: BYTES }"),
              "empty: has no characters for this part");
  EXPECT_SAYS(error("tokens { train: 'empty' }"), "empty: has no tokens");
  EXPECT_SAYS(error("tokens { train: 'a.bin' vocab_size: 300 }"),
              "a.bin: token 2: 300 is not in the vocabulary, [0, 300)");
  EXPECT_SAYS(error("tokens { train: 'a.bin' length: 0 }"), "data.tokens.length: 0 is not in");
  EXPECT_EQ(error("text { train_file: 'text.txt' }"), "no exception");
  EXPECT_SAYS(error("text { train_file: 'other.txt' eval_file: 'other.txt' }", Part::kEvaluation),
              "out/vocab.txt: names other tokens than those that are packed now");
}

TEST_F(PackTokensTest, ChecksTheVocabularyFile) {
  folder.write("out/train-000000.bin", bytes_of<uint16_t>({0, 1, 2, 1, 0}));
  folder.write("out/vocab.txt", "a\n\\n\nü\n");
  const auto dataset = open_dataset(packed("length: 2 vocab_file: 'vocab.txt'"), Part::kTraining);
  EXPECT_THAT(dataset->class_names(), ElementsAre("a", "\\n", "ü"));
  EXPECT_EQ(dataset->spec().bytes_per_token, 6 / 5.0);
  EXPECT_SAYS(testing::config_error(packed("length: 2 vocab_file: 'vocab.txt' vocab_size: 4")),
              "data.tokens.vocab_size: is 4, but");
  EXPECT_SAYS(testing::data_error(packed("length: 2 vocab_file: 'no.txt'")), "no.txt");
  folder.write("out/vocab.txt", "a\nthe\n");
  EXPECT_SAYS(testing::data_error(packed("length: 2 vocab_file: 'vocab.txt'")),
              "vocab.txt: line 2: 'the' is not the name of a character or a byte");
}

}  // namespace
}  // namespace trireme::data
