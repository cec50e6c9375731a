// Handling of records that are damaged, truncated or mislabeled; see data.on_bad_record.
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

// The records that were skipped.
struct BadRecords {
  int64_t count = 0;
  std::vector<std::string> first;  // the first few: "FILE: record 17: label 12 is not in [0, 10)"
};

// A limit that allows any number of bad records. BadRecords::first then holds up to 10000 messages
// instead of 5.
inline constexpr int64_t kUnlimitedBadRecords = INT64_MAX;

// Returns the message of an error: that there are more bad records than `limit`, of which `first`
// is a description.
std::string too_many_bad_records(int64_t count, int64_t limit, const std::string& first);

// Returns how many bad records may be skipped, or nullopt if the first one is an error (FAIL).
std::optional<int64_t> bad_record_limit(const DataConfig& config);

// Throws or counts bad records as a format or a loader finds them. Not thread-safe.
class BadRecordPolicy {
 public:
  explicit BadRecordPolicy(std::optional<int64_t> limit) : limit_(limit) {}

  bool skips() const { return limit_.has_value(); }
  // Counts `count` records as skipped because of `error`, which describes the first of them. Throws
  // `error` if bad records may not be skipped.
  void add(const DataError& error, int64_t count = 1);
  // Throws DataError if the records counted here plus `others` exceed the limit.
  void check(const std::string& source, int64_t others = 0) const;
  // Throws DataError if `good`, the number of remaining records, is 0.
  void check_not_empty(const std::string& source, int64_t good) const;
  const BadRecords& found() const { return found_; }

 private:
  std::optional<int64_t> limit_;
  BadRecords found_;
};

}  // namespace trireme::data
