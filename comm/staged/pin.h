#pragma once

#include "core/device.h"

namespace trireme::comm {

// Page-locks host memory, so that copies to and from the device are as fast as for memory from
// Device::allocate_host. Destroying the returned guard unlocks it, which must happen before the
// memory is released.
Buffer pin(const Buffer& memory, Device& device);

}  // namespace trireme::comm
