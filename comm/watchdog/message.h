// Encodes and decodes the messages that hosts exchange. The format is little-endian and versioned.
// Messages come from the network, so any that deviates from the format is rejected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/watchdog/diagnose.h"
#include "comm/watchdog/view.h"

namespace trireme::comm {

// A diagnosis that all ranks should adopt. If several ranks propose one at the same time, the
// lowest rank's is adopted.
struct Decision {
  int64_t when = 0;
  int32_t rank = 0;  // the rank that proposed it
  Diagnosis diagnosis;
};

struct Message {
  int64_t now = 0;              // all times are of the sender's clock
  std::vector<RankView> ranks;  // the ranks of the sender's host
  std::optional<Decision> decision;
};

// Returns the message as bytes. Texts are truncated to the sizes of LedgerRecord.
std::vector<std::byte> encode(const Message& message);
// Returns the message, or nullopt if `bytes` is not a complete message of this version.
std::optional<Message> decode(std::span<const std::byte> bytes);

// Converts all times in the message to the clock of the receiver, which reads `now`.
void convert_times(Message& message, int64_t now);

}  // namespace trireme::comm
