// metrics.jsonl as `trireme report` and `trireme runs` read it: any text gives records in order.
#include <algorithm>

#include "tests/fuzz/fuzz.h"
#include "trainer/report/run_records.h"

namespace {

template <class Point>
bool ascending(const std::vector<Point>& points) {
  return std::adjacent_find(points.begin(), points.end(), [](const Point& a, const Point& b) {
           return a.step >= b.step;
         }) == points.end();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using trireme::fuzz::require;
  trireme::train::RunRecords records;
  trireme::train::read_metrics(trireme::fuzz::text_of(data, size), records);
  trireme::fuzz::require(ascending(records.steps), "steps ascend");
  trireme::fuzz::require(ascending(records.evaluations), "so do evaluations");
  trireme::fuzz::require(ascending(records.lags), "and lags");
  trireme::fuzz::require(records.problems.size() <= 6, "damage is told in few words");
  trireme::train::parse_summary(std::string(trireme::fuzz::text_of(data, size)));
  return 0;
}
