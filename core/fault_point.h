// Places at which tests break a run on purpose (tests/faults). In the program that users run
// nothing happens there: fault_point.cc is empty, and only tests/faults/inject.cc, linked in its
// place, does anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace trireme {

// `name` of the place, `index` which time it is passed (a step, a batch), `memory` what could be
// spoiled there. True: leave out what follows.
bool fault_point(const char* name, int64_t index = 0, std::span<std::byte> memory = {});

}  // namespace trireme
