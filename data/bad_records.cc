#include "data/bad_records.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/data.pb.h"

namespace trireme::data {
namespace {

constexpr size_t kMaxMessages = 5;
constexpr size_t kMaxMessagesUnlimited = 10000;

}  // namespace

std::string too_many_bad_records(int64_t count, int64_t limit, const std::string& first) {
  return fmt::format("{} bad records, more than data.max_bad_records, {}; the first: {}", count,
                     limit, first);
}

std::optional<int64_t> bad_record_limit(const DataConfig& config) {
  if (config.on_bad_record() == DataConfig::FAIL) return std::nullopt;
  return config.max_bad_records();
}

void BadRecordPolicy::add(const DataError& error, int64_t count) {
  if (!skips()) throw error;
  if (__builtin_add_overflow(found_.count, count, &found_.count)) found_.count = INT64_MAX;
  const size_t max_messages = limit_ == kUnlimitedBadRecords ? kMaxMessagesUnlimited : kMaxMessages;
  if (found_.first.size() < max_messages) found_.first.emplace_back(error.what());
}

void BadRecordPolicy::check(const std::string& source, int64_t others) const {
  if (!skips() || found_.count <= *limit_ - std::min(others, *limit_)) return;
  throw DataError(source,
                  too_many_bad_records(found_.count + others, *limit_, found_.first.front()));
}

void BadRecordPolicy::check_not_empty(const std::string& source, int64_t good) const {
  if (good > 0) return;
  if (found_.count == 0) throw DataError(source, "has no records");
  throw DataError(source, fmt::format("has no good records, only {} bad ones; the first: {}",
                                      found_.count, found_.first.front()));
}

}  // namespace trireme::data
