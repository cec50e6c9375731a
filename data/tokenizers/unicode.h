// The properties of Unicode characters by which tokenizers split text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::data {

// The classes that the pattern of GPT-2 distinguishes: \s, \p{L}, \p{N} and the others.
enum class CharacterClass : uint8_t { kSpace, kLetter, kNumber, kOther };

// `character` is a code point of Unicode.
CharacterClass character_class(int32_t character);

// How the BasicTokenizer of BERT changes text (Devlin et al., arXiv:1810.04805).
struct BertText {
  bool lowercase = true;
  // Removes accents: decomposes characters (NFD) and removes nonspacing marks.
  bool strip_accents = true;
};
// Returns UTF-8 text with control characters removed, each white space as ' ', spaces around
// Chinese characters, and changes to letters as in `bert`.
std::string bert_normalized(std::string_view text, const BertText& bert);
// Returns true if the BasicTokenizer makes the character a word of its own.
bool is_punctuation(int32_t character);

}  // namespace trireme::data
