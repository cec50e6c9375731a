// Ends this process at a given time, even if all its threads are stuck.
#pragma once

#include <time.h>

#include <optional>

namespace trireme::comm {

// Makes the kernel kill this process after `seconds`, unless the returned timer is deleted before.
// Returns nullopt if no timer can be created.
std::optional<timer_t> kill_after(double seconds) noexcept;

// Like kill_after, but cannot be canceled, and uses SIGALRM if no timer can be created. Only the
// first call has an effect.
void arm_kill_timer(double seconds) noexcept;

}  // namespace trireme::comm
