#include "trainer/profile/clocks.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "comm/control.h"

namespace trireme::train {

ClockOffset clock_offset(std::span<const ClockExchange> reference,
                         std::span<const ClockExchange> other) {
  int64_t min_offset = std::numeric_limits<int64_t>::min();
  int64_t max_offset = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < reference.size(); ++i) {
    min_offset = std::max(min_offset, other[i].begin - reference[i].end);
    max_offset = std::min(max_offset, other[i].end - reference[i].begin);
  }
  if (min_offset <= 0 && max_offset >= 0) return {0, std::max(-min_offset, max_offset)};
  const int64_t middle = min_offset + (max_offset - min_offset) / 2;
  return {middle, std::max(max_offset - middle, middle - min_offset)};
}

std::vector<ClockOffset> measure_clocks(comm::Communicator& communicator) {
  constexpr int kRounds = 20;
  std::vector<ClockExchange> own;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t begin = comm::monotonic_ns();
    all_gather(communicator, "");
    own.push_back({begin, comm::monotonic_ns()});
  }
  nlohmann::json text = nlohmann::json::array();
  for (const ClockExchange& each : own) text.push_back({each.begin, each.end});
  std::vector<std::vector<ClockExchange>> all;
  for (const std::string& rank : all_gather(communicator, text.dump())) {
    std::vector<ClockExchange>& exchanges = all.emplace_back();
    for (const auto& each : nlohmann::json::parse(rank)) {
      exchanges.push_back({each.at(0), each.at(1)});
    }
  }
  std::vector<ClockOffset> offsets;
  for (const auto& each : all) offsets.push_back(clock_offset(all.front(), each));
  offsets.front() = {};
  return offsets;
}

}  // namespace trireme::train
