// Replaces words of texts by synonyms (data.labeled_text.synonyms).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/random.h"
#include "data/data.pb.h"

namespace trireme::data {

class Synonyms {
 public:
  // Reads the files, relative to folder `root`. Throws ConfigError
  // ("data.labeled_text.synonyms...") if the configuration is invalid, and DataError, with the file
  // and line, if a file is.
  Synonyms(const SynonymsConfig& config, const std::string& root);

  // Replaces words of UTF-8 text, which is a pure function of the arguments. `key` identifies the
  // text among those with the same random numbers. Returns whether anything has been replaced.
  bool replace(std::string& text, const Random& random, uint64_t key) const;

  // Returns the number of words that have synonyms, and the probability that one is replaced.
  int64_t words() const { return std::ssize(synonyms_); }
  float probability() const { return probability_; }

 private:
  void add_line(std::string_view line, const std::string& where);
  const std::vector<std::string>* find(std::string_view word) const;

  float probability_;
  std::unordered_map<std::string, std::vector<std::string>> synonyms_;  // by the word in lowercase
  size_t bytes_ = 0;  // of synonyms_, as if no line repeated another
};

}  // namespace trireme::data
