// What is done about records that are damaged, cut off or mislabeled; see data.on_bad_record.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"

namespace trireme {
class DataConfig;
}  // namespace trireme

namespace trireme::data {

// Records that were left out.
struct BadRecords {
  int64_t count = 0;
  std::vector<std::string> first;  // the first few: "FILE: record 17: label 12 is not in [0, 10)"
};

// As a limit: any number may be, and many more are remembered, for who wants to know all of them.
inline constexpr int64_t kAnyNumber = INT64_MAX;

// How many may be left out before that is an error of its own; empty: not one (FAIL).
std::optional<int64_t> bad_record_limit(const DataConfig& config);

// Decides about bad records as they are found. For one thread at a time.
class BadRecordPolicy {
 public:
  explicit BadRecordPolicy(std::optional<int64_t> limit) : limit_(limit) {}

  bool skips() const { return limit_.has_value(); }
  // `count` records are left out because of what `error` says about the first of them. Throws it
  // when none may be.
  void add(const DataError& error, int64_t count = 1);
  // Throws DataError when more were left out than may be, these and `others`.
  void check(const std::string& source, int64_t others = 0) const;
  // Throws DataError when no good record is left.
  void check_some(const std::string& source, int64_t good) const;
  const BadRecords& found() const { return found_; }

 private:
  std::optional<int64_t> limit_;
  BadRecords found_;
};

}  // namespace trireme::data
