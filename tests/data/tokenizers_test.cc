#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <functional>

#include "core/utf8.h"
#include "data/files/file.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/data/files.h"

namespace trireme::data {
namespace {

using ::testing::ElementsAre;
using testing::Folder;
using testing::message;

// The vocabulary and the texts of Hugging Face's tokenizers (tests/golden/make_tokenizers.py).
std::string goldens() {
  const char* full = std::getenv("TRIREME_TOKENIZERS");
  return full ? full : TRIREME_SOURCE "/tests/golden/tokenizers";
}

std::string slurp(const std::string& path) {
  const File file = read_file(path);
  return {file.bytes.begin(), file.bytes.end()};
}

TokenizerConfig parse(const std::string& text) {
  TokenizerConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return config;
}

std::shared_ptr<const Tokenizer> open(const std::string& config, const std::string& folder) {
  return open_tokenizer(parse(config), folder, "data.text.tokenizer");
}

// Returns where two sequences of tokens differ first, with the tokens there.
std::string difference(const Tokenizer& tokenizer, const std::vector<int32_t>& got,
                       const std::vector<int32_t>& wanted) {
  const auto [a, b] = std::ranges::mismatch(got, wanted);
  if (a == got.end() && b == wanted.end()) return "";
  const auto around = [&](const std::vector<int32_t>& tokens, auto at) {
    std::string text;
    const auto begin = at - std::min<int64_t>(5, at - tokens.begin());
    for (auto i = begin; i != tokens.end() && i < at + 5; ++i) {
      text += fmt::format("{}[{}] ", *i, tokenizer.text_of(*i));
    }
    return text;
  };
  return fmt::format("token {}: {} instead of {}", a - got.begin(), around(got, a),
                     around(wanted, b));
}

void expect_golden(const std::string& name, const std::string& config) {
  const auto tokenizer = open(config, goldens() + "/" + name);
  const std::string bytes = slurp(goldens() + "/" + name + "/tokens.bin");
  std::vector<int32_t> wanted;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    wanted.push_back(static_cast<uint8_t>(bytes[i]) | static_cast<uint8_t>(bytes[i + 1]) << 8);
  }
  ASSERT_GT(wanted.size(), 1000U);
  EXPECT_EQ(difference(*tokenizer, tokenizer->encode(slurp(goldens() + "/text.txt")), wanted), "");
}

TEST(Tokenizers, BpeEqualsHuggingFace) { expect_golden("bpe", "bpe {}"); }
TEST(Tokenizers, WordPieceEqualsHuggingFace) { expect_golden("wordpiece", "wordpiece {}"); }
TEST(Tokenizers, CasedWordPieceEqualsHuggingFace) {
  expect_golden("wordpiece-cased", "wordpiece { lowercase: false }");
}

TEST(Tokenizers, BpeDecodesEveryText) {
  const auto tokenizer = open("bpe {}", goldens() + "/bpe");
  const std::string text = slurp(goldens() + "/text.txt");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_TRUE(tokenizer->encode("").empty());
  EXPECT_EQ(tokenizer->decode({}), "");
}

// Returns a JSON object with a token for each byte, in the order of their names, then `more`.
std::string byte_vocab(const std::vector<std::string>& more) {
  std::vector<std::string> names;
  int32_t next = 256;
  for (int32_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte < 127) || (byte > 160 && byte != 173);
    names.push_back(to_utf8(itself ? byte : next++));
  }
  names.insert(names.end(), more.begin(), more.end());
  std::string json = "{";
  for (size_t i = 0; i < names.size(); ++i) {
    const bool escape = names[i] == "\"" || names[i] == "\\";
    json += fmt::format("{}\"{}{}\": {}", i == 0 ? "" : ", ", escape ? "\\" : "", names[i], i);
  }
  return json + "}";
}

class SmallBpe : public ::testing::Test {
 protected:
  // Returns the texts of the tokens.
  std::vector<std::string> tokens(const std::string& text) const {
    const auto tokenizer = open("bpe {}", folder.path());
    std::vector<std::string> texts;
    for (const int32_t token : tokenizer->encode(text)) {
      texts.push_back(tokenizer->text_of(token));
    }
    return texts;
  }
  std::string error() const {
    return message<DataError>([&] { open("bpe {}", folder.path()); });
  }
  void write(const std::vector<std::string>& more, const std::string& merges) const {
    folder.write("vocab.json", byte_vocab(more));
    folder.write("merges.txt", merges);
  }
  Folder folder;
};

TEST_F(SmallBpe, MergesPairsOfTheLowestRankFirst) {
  write({"bc", "ab", "abc",
         "\xc4\xa0"
         "a"},
        "#version: 0.2\nb c\na b\nab c\n\xc4\xa0 a\n");
  EXPECT_THAT(tokens("abc"), ElementsAre("a", "bc"));
  EXPECT_THAT(tokens("ab a"), ElementsAre("ab", " a"));
  EXPECT_THAT(tokens("a\xc3\xa4"), ElementsAre("a", "\xc3", "\xa4"));
}

// Names that no merge makes.
TEST_F(SmallBpe, NamesOfSpecialTokensAreTokensWhereAllowed) {
  write({"<|endoftext|>", "<|im_start|>", "<|im_start|>x", "<a", "<a>", "word"}, "< a\n<a >\n");
  const auto tokenizer = open("bpe {}", folder.path());
  const auto texts = [&](const std::vector<int32_t>& tokens) {
    std::vector<std::string> all;
    for (const int32_t token : tokens) all.push_back(tokenizer->text_of(token));
    return all;
  };
  const std::string text = "a<|im_start|>x<|endoftext|><a><|im";
  EXPECT_THAT(
      texts(tokenizer->encode_with_special(text)),
      ElementsAre("a", "<|im_start|>", "x", "<|endoftext|>", "<", "a", ">", "<", "|", "i", "m"));
  EXPECT_EQ(tokenizer->encode(text).size(), text.size());
  EXPECT_EQ(tokenizer->encode_with_special("word"), tokenizer->encode("word"));
  EXPECT_TRUE(tokenizer->encode_with_special("").empty());
  EXPECT_SAYS(message<Error>([&] { tokenizer->encode_with_special("<|endoftext|>\xff"); }),
              "is not UTF-8 at byte 13");
}

TEST(Tokenizers, WordPieceTakesNamesOfSpecialTokensWhereAllowed) {
  const auto tokenizer = open("wordpiece {}", goldens() + "/wordpiece");
  const std::vector<int32_t> word = tokenizer->encode("the"), end = {tokenizer->special().end};
  std::vector<int32_t> wanted = {tokenizer->special().begin};
  wanted.insert(wanted.end(), word.begin(), word.end());
  wanted.insert(wanted.end(), end.begin(), end.end());
  EXPECT_EQ(tokenizer->encode_with_special("[CLS] the [SEP]"), wanted);
  EXPECT_GT(tokenizer->encode("[CLS] the [SEP]").size(), wanted.size());
}

TEST_F(SmallBpe, WhiteSpaceBeforeAWordDoesNotIncludeItsLastCharacter) {
  // Merges make the words of the pattern visible.
  write({"\xc4\xa0\xc4\xa0",
         "\xc4\xa0"
         "a",
         "\xc4\x8a\xc4\x8a"},
        "\xc4\xa0 \xc4\xa0\n\xc4\xa0 a\n\xc4\x8a \xc4\x8a\n");
  EXPECT_THAT(tokens("  a"), ElementsAre(" ", " a"));
  EXPECT_THAT(tokens("   a"), ElementsAre("  ", " a"));
  EXPECT_THAT(tokens("a  "), ElementsAre("a", "  "));
  EXPECT_THAT(tokens("\n\na"), ElementsAre("\n", "\n", "a"));
  EXPECT_THAT(tokens("\n\n"), ElementsAre("\n\n"));
}

TEST_F(SmallBpe, NamesOfSpecialTokensAreOrdinaryText) {
  write({"<|endoftext|>"}, "");
  const auto tokenizer = open("bpe {}", folder.path());
  EXPECT_EQ(tokenizer->special().end, 256);
  EXPECT_EQ(tokenizer->special().begin, SpecialTokens::kNone);
  EXPECT_EQ(tokenizer->text_of(256), "<|endoftext|>");
  EXPECT_EQ(tokenizer->encode("<|endoftext|>").size(), 13U);
}

TEST_F(SmallBpe, LongWordsTakeLittleTime) {
  write({"aa", "aaaa"}, "a a\naa aa\n");
  EXPECT_EQ(open("bpe {}", folder.path())->encode(std::string(1 << 20, 'a')).size(), 1U << 18);
}

TEST_F(SmallBpe, InvalidUtf8IsNamed) {
  write({}, "");
  EXPECT_EQ(message<Error>([&] { tokens("abc\xff"); }), "is not UTF-8 at byte 3");
  EXPECT_EQ(message<Error>([&] { tokens("a\xed\xa0\x80"); }), "is not UTF-8 at byte 1");
  EXPECT_EQ(message<Error>([&] { tokens("\xe2\x82"); }), "is not UTF-8 at byte 0");
}

TEST_F(SmallBpe, InvalidFilesAreNamed) {
  write({"ab"}, "a b\na b c\n");
  EXPECT_SAYS(error(), "merges.txt: line 2: 'a b c' is not two tokens separated by a space");
  write({"ab"}, "a b\n a\n");
  EXPECT_SAYS(error(), "merges.txt: line 2: ' a' is not two tokens");
  write({"th"}, "#version: 0.2\nt h\nth\n");  // a merge of one token
  EXPECT_SAYS(error(), "merges.txt: line 3: 'th' is not two tokens separated by a space");
  write({"ab"}, "a b\n\na c\n");
  EXPECT_SAYS(error(), "merges.txt: line 3: 'ac' is not in the vocabulary");
  write({"ab"}, "a b\na b\n");
  EXPECT_SAYS(error(), "merges.txt: line 2: 'a b' occurs in an earlier line, too");
  folder.write("vocab.json", "{\"a\": 0, \"b\": 1}");
  EXPECT_SAYS(error(), "vocab.json: has no token for byte 0x00");
  folder.write("vocab.json", "{\"a\": 0, \"b\": 0}");
  EXPECT_SAYS(error(), "vocab.json: tokens 'a' and 'b' have the same id");
  folder.write("vocab.json", "{\"a\": 0, \"b\": 2}");
  EXPECT_SAYS(error(), "vocab.json: the id of token 'b' is 2; ids are integers in [0, 2)");
  folder.write("vocab.json", "{\"a\": 0, \"b\": 0.5}");
  EXPECT_SAYS(error(), "the id of token 'b' is 0.5");
  folder.write("vocab.json", "{\"a\": 0}");
  EXPECT_SAYS(error(), "vocab.json: has 1 tokens, which is not in [2, 16777216]");
  for (const char* text : {"", "[]", "{", "{\"\xff\": 1, \"b\": 0}"}) {
    folder.write("vocab.json", text);
    EXPECT_SAYS(error(), "vocab.json: is not a JSON object of tokens and their ids") << text;
  }
}

class SmallWordPiece : public ::testing::Test {
 protected:
  std::vector<std::string> tokens(const std::string& text, const std::string& options = "") const {
    const auto tokenizer = open("wordpiece { " + options + " }", folder.path());
    std::vector<std::string> texts;
    for (const int32_t token : tokenizer->encode(text)) {
      texts.push_back(tokenizer->text_of(token));
    }
    return texts;
  }
  std::string error() const {
    return message<DataError>([&] { open("wordpiece {}", folder.path()); });
  }
  Folder folder;
};

TEST_F(SmallWordPiece, SplitsWordsIntoTheLongestPieces) {
  folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\n,\nunaf\n");
  EXPECT_THAT(tokens("Unaffable, UNABLE"),
              ElementsAre(" [UNK]", " ,", " un", "able"));  // "unaf" is longer than "un"
  const auto tokenizer = open("wordpiece {}", folder.path());
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("un,unable")), "un , unable");
  const SpecialTokens& special = tokenizer->special();
  EXPECT_THAT((std::vector{special.pad, special.unknown, special.begin, special.end, special.mask}),
              ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(SmallWordPiece, NormalizesAsBert) {
  folder.write("vocab.txt", "[UNK]\na\nA\n\xc3\xa4\n\xe5\xad\x97\n[\nunk\n]\n");
  EXPECT_THAT(tokens("A\xc3\xa4 \xe5\xad\x97"
                     "a a\x01"),
              ElementsAre(" [UNK]", " \xe5\xad\x97", " a", " a"));
  EXPECT_THAT(tokens("A \xc3\x84"), ElementsAre(" a", " a"));
  EXPECT_THAT(tokens("A \xc3\x84", "strip_accents: false"), ElementsAre(" a", " \xc3\xa4"));
  EXPECT_THAT(tokens("A \xc3\xa4", "lowercase: false"), ElementsAre(" A", " \xc3\xa4"));
  EXPECT_THAT(tokens("A \xc3\xa4", "lowercase: false strip_accents: true"),
              ElementsAre(" A", " a"));
  EXPECT_THAT(tokens("[UNK]"), ElementsAre(" [", " unk", " ]"));
  EXPECT_THAT(tokens(std::string(101, 'a')), ElementsAre(" [UNK]"));
}

TEST_F(SmallWordPiece, InvalidFilesAreNamed) {
  folder.write("vocab.txt", "a\nb\n");
  EXPECT_SAYS(error(), "vocab.txt: has no token [UNK]");
  folder.write("vocab.txt", "[UNK]\na\n\nb\n");
  EXPECT_SAYS(error(), "vocab.txt: line 3: is empty");
  folder.write("vocab.txt", "[UNK]\na\na\n");
  EXPECT_SAYS(error(), "vocab.txt: line 3: token 'a' is in line 2, too");
  folder.write("vocab.txt", "[UNK]\n\xff\n");
  EXPECT_SAYS(error(), "vocab.txt: line 2: is not UTF-8 at byte 0");
}

TEST(Tokenizers, InvalidConfigurationsAreNamed) {
  const Folder folder;
  EXPECT_SAYS(message<ConfigError>([&] { open("", folder.path()); }),
              "data.text.tokenizer: has no kind; set bpe, wordpiece or sentencepiece");
  EXPECT_SAYS(message<ConfigError>([&] { open("bpe { merges: '' vocab: '' }", folder.path()); }),
              "is empty; name a file");
  EXPECT_SAYS(message<DataError>([&] { open("wordpiece {}", folder.path()); }), "vocab.txt");
}

TEST(Tokenizers, SavedFilesGiveTheSameTokenizer) {
  const Folder folder;
  const auto bpe = open("bpe {}", goldens() + "/bpe");
  const auto cased = open("wordpiece { lowercase: false }", goldens() + "/wordpiece-cased");
  for (const auto& tokenizer : {bpe, cased}) {
    save_tokenizer(*tokenizer, folder.path("kept"));
    const auto kept = open_tokenizer(tokenizer->config(), folder.path("kept"), "tokenizer");
    EXPECT_EQ(kept->identity(), tokenizer->identity());
    EXPECT_EQ(kept->encode("\xc3\x84 Test"), tokenizer->encode("\xc3\x84 Test"));
  }
  EXPECT_NE(cased->identity(), open("wordpiece {}", goldens() + "/wordpiece-cased")->identity());
}

}  // namespace
}  // namespace trireme::data
