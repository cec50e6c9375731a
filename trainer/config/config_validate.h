#pragma once

#include "trainer/config/config.h"

namespace trireme::train {

// Throws ConfigError for the first invalid value. Checks everything that depends on the
// configuration alone.
void validate(const Config& config);

}  // namespace trireme::train
