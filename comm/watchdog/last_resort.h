// The end that needs nobody's help.
#pragma once

#include <time.h>

#include <optional>

namespace trireme::comm {

// After so many seconds the kernel kills this process, whatever its threads do, unless the timer is
// deleted before. Nothing where there is no timer to be had.
std::optional<timer_t> kill_after(double seconds) noexcept;

// The same for good. A second call changes nothing.
void arm_last_resort(double seconds) noexcept;

}  // namespace trireme::comm
