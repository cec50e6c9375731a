// What hosts tell each other, as bytes. Little-endian, versioned; whatever does not follow the
// format to the last byte is refused, as it comes from outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/watchdog/diagnose.h"
#include "comm/watchdog/view.h"

namespace trireme::comm {

// A diagnosis that is to be everybody's. Where several were found at once, that of the lowest rank
// is.
struct Decision {
  int64_t when = 0;
  int32_t rank = 0;  // that found it
  Diagnosis diagnosis;
};

struct Message {
  int64_t now = 0;              // by the sender's clock, as all times in it
  std::vector<RankView> ranks;  // of the sender's host
  std::optional<Decision> decision;
};

// Texts are cut to what their places in the ledger hold.
std::vector<std::byte> encode(const Message& message);
// Nothing unless it is a whole message of this version.
std::optional<Message> decode(std::span<const std::byte> bytes);

// The same by the clock of the receiver, to whom it is `now`.
void translate(Message& message, int64_t now);

}  // namespace trireme::comm
