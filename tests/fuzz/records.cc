// metrics.jsonl as read by `trireme report` and `trireme runs`: any text gives records in order.
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
  require(ascending(records.steps), "steps ascend");
  require(ascending(records.evaluations), "evaluations ascend");
  require(ascending(records.lags), "lags ascend");
  require(records.problems.size() <= 6, "the list of problems is short");
  trireme::train::parse_summary(std::string(trireme::fuzz::text_of(data, size)));
  return 0;
}
