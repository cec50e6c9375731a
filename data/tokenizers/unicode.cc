#include "data/tokenizers/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/utf8.h"

namespace trireme::data {
namespace {

// The property White_Space.
bool is_white_space(int32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

CharacterClass class_by_category(int32_t character) {
  if (is_white_space(character)) return CharacterClass::kSpace;
  switch (utf8proc_category(character)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharacterClass::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharacterClass::kNumber;
    default:
      return CharacterClass::kOther;
  }
}

constexpr int32_t kAscii = 0x80;

// Controls other than these are removed.
bool is_kept_control(int32_t c) { return c == '\t' || c == '\n' || c == '\r'; }

bool is_removed(int32_t c) {
  if (c == 0xfffd) return true;
  const utf8proc_category_t category = utf8proc_category(c);
  const bool control = category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
                       category == UTF8PROC_CATEGORY_CO;
  return control && !is_kept_control(c);
}

// The blocks of Chinese characters, as in Hugging Face's tokenizers; BERT has 2b820 instead of
// 2b920. Hiragana, Katakana and Hangul are not among them.
bool is_chinese(int32_t c) {
  constexpr std::array<std::array<int32_t, 2>, 8> kBlocks{{{0x4e00, 0x9fff},
                                                           {0x3400, 0x4dbf},
                                                           {0x20000, 0x2a6df},
                                                           {0x2a700, 0x2b73f},
                                                           {0x2b740, 0x2b81f},
                                                           {0x2b920, 0x2ceaf},
                                                           {0xf900, 0xfaff},
                                                           {0x2f800, 0x2fa1f}}};
  return c >= 0x3400 &&
         std::ranges::any_of(kBlocks, [&](const auto& b) { return c >= b[0] && c <= b[1]; });
}

// Writes normalized text. Characters with a combining class are held back until the next one
// without, since NFD sorts them.
class BertNormalizer {
 public:
  explicit BertNormalizer(const BertText& bert, size_t bytes) : bert_(bert) {
    text_.reserve(bytes);
  }

  void add(int32_t c) {
    if (c < kAscii) return add_ascii(c);
    if (is_removed(c)) return;
    if (is_white_space(c)) return add_separator();
    const bool chinese = is_chinese(c);
    if (chinese) add_separator();
    if (bert_.strip_accents) {
      add_decomposed(c);
    } else {
      add_letter(c);
    }
    if (chinese) add_separator();
  }
  std::string finish() {
    flush();
    return std::move(text_);
  }

 private:
  struct Mark {
    int32_t code;
    int combining_class;
  };

  void add_ascii(int32_t c) {
    flush();
    if (c == ' ' || is_kept_control(c)) {
      text_ += ' ';
    } else if (c > ' ' && c != 0x7f) {
      const bool upper = bert_.lowercase && c >= 'A' && c <= 'Z';
      text_ += static_cast<char>(upper ? c + ('a' - 'A') : c);
    }
  }
  void add_separator() {
    flush();
    text_ += ' ';
  }
  void add_decomposed(int32_t c) {
    constexpr int kMaxDecomposed = 16;  // of Unicode's characters, at most 4
    std::array<utf8proc_int32_t, kMaxDecomposed> parts{};
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        c, parts.data(), parts.size(),
        static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE), &boundary);
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      const int32_t part = parts.at(static_cast<size_t>(i));
      const utf8proc_property_t* property = utf8proc_get_property(part);
      if (property->combining_class == 0) flush();
      if (property->category == UTF8PROC_CATEGORY_MN) continue;
      if (property->combining_class == 0) {
        add_letter(part);
      } else {
        marks_.push_back({part, property->combining_class});
      }
    }
  }
  void add_letter(int32_t c) {
    if (!bert_.lowercase) {
      append_utf8(text_, c);
    } else if (c == 0x130) {  // the only character whose lower case has two
      text_ += "i\u0307";
    } else {
      append_utf8(text_, utf8proc_tolower(c));
    }
  }
  void flush() {
    if (marks_.empty()) return;
    std::ranges::stable_sort(marks_, {}, &Mark::combining_class);
    for (const Mark& mark : marks_) add_letter(mark.code);
    marks_.clear();
  }

  const BertText bert_;
  std::string text_;
  std::vector<Mark> marks_;
};

}  // namespace

CharacterClass character_class(int32_t character) {
  static const auto ascii = [] {
    std::array<CharacterClass, kAscii> classes{};
    for (int32_t c = 0; c < kAscii; ++c) classes.at(static_cast<size_t>(c)) = class_by_category(c);
    return classes;
  }();
  return character < kAscii ? ascii[character] : class_by_category(character);
}

std::string bert_normalized(std::string_view text, const BertText& bert) {
  BertNormalizer normalizer(bert, text.size() + text.size() / 4);
  for (size_t at = 0; at < text.size();) {
    const auto [character, length] = utf8_character(text, at);
    normalizer.add(character);
    at += length;
  }
  return normalizer.finish();
}

bool is_punctuation(int32_t c) {
  if (c < kAscii) {
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
           (c >= 123 && c <= 126);
  }
  const utf8proc_category_t category = utf8proc_category(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

}  // namespace trireme::data
