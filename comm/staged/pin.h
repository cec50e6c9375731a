#pragma once

#include "core/device.h"

namespace trireme::comm {

// Makes host memory as good for copies to and from the device as what its allocate_host gives,
// until the returned guard goes, which is before the memory does.
Buffer pin(const Buffer& memory, Device& device);

}  // namespace trireme::comm
