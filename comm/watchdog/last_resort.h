// The end that needs nobody's help.
#pragma once

namespace trireme {

// After so many seconds the kernel kills this process, whatever its threads do. A second call
// changes nothing.
void arm_last_resort(double seconds) noexcept;

}  // namespace trireme
