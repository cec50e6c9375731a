// Points at which the tests in tests/faults inject failures. In the released program they do
// nothing: fault_point.cc is a stub, which those tests replace with tests/faults/inject.cc at link
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace trireme {

// Marks a point where a test can inject a failure. `name` identifies the point, `index` the
// iteration (a step or a batch), and `memory` is data that a test may corrupt. Returns true if the
// caller should skip the operation that follows.
bool fault_point(const char* name, int64_t index = 0, std::span<std::byte> memory = {});

}  // namespace trireme
