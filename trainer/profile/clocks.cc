#include "trainer/profile/clocks.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "comm/control.h"

namespace trireme::train {

ClockOffset clock_offset(std::span<const ClockExchange> reference,
                         std::span<const ClockExchange> other) {
  int64_t least = std::numeric_limits<int64_t>::min();
  int64_t most = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < reference.size(); ++i) {
    least = std::max(least, other[i].told - reference[i].heard);
    most = std::min(most, other[i].heard - reference[i].told);
  }
  if (least <= 0 && most >= 0) return {0, std::max(-least, most)};
  const int64_t middle = least + (most - least) / 2;
  return {middle, std::max(most - middle, middle - least)};
}

std::vector<ClockOffset> measure_clocks(comm::Communicator& communicator) {
  constexpr int kRounds = 20;
  std::vector<ClockExchange> own;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t told = comm::monotonic_ns();
    all_gather(communicator, "");
    own.push_back({told, comm::monotonic_ns()});
  }
  nlohmann::json text = nlohmann::json::array();
  for (const ClockExchange& each : own) text.push_back({each.told, each.heard});
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
