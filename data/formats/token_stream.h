// Tokens as one sequence, for packing, and the header of the files that hold them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/bad_records.h"
#include "data/tokenizers/tokenizer.h"

namespace trireme::data {

// Headers of llm.c have 256 words of 32 bits. They begin with the magic number, the version and the
// number of tokens; the others are 0.
struct TokenHeader {
  int32_t magic;
  int32_t version;
  size_t width;  // bytes per token
};
inline constexpr size_t kTokenHeaderBytes = 256 * sizeof(int32_t);
inline constexpr std::array kTokenHeaders{TokenHeader{20240520, 1, 2}, TokenHeader{20240801, 7, 4}};

// All tokens of the training or the evaluation samples.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  virtual int64_t size() const = 0;        // at least 1
  virtual int64_t vocab_size() const = 0;  // tokens are in [0, vocab_size)
  // Returns the name of each token, see TokenText. Empty if tokens have no names.
  virtual std::vector<std::string> names() const = 0;
  // See Dataset::tokenizer.
  virtual std::shared_ptr<const Tokenizer> tokenizer() const = 0;
  virtual std::string description() const = 0;
  virtual BadRecords bad_records() const = 0;
  // Copies the tokens from `begin` on. Throws DataError that names the file and the token if one is
  // not in the vocabulary.
  virtual void read(int64_t begin, std::span<int32_t> tokens) const = 0;
};

}  // namespace trireme::data
