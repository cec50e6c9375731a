#pragma once

#include "trainer/config/config.h"

namespace trireme::train {

// Throws ConfigError for the first field whose value cannot be, as far as the configuration alone
// tells.
void validate(const Config& config);

}  // namespace trireme::train
