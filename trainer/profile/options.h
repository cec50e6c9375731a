// What is asked of a profile.
#pragma once

#include <functional>

#include "comm/communicator.h"
#include "ops/backend.h"
#include "trainer/config/config.h"
#include "trainer/profile/window.h"

namespace trireme::train {

// What a rank reaches at most, in operations and in bytes copied (read and written together) a
// second; 0 where it is not known.
struct Peaks {
  double flops = 0;
  double bytes = 0;
};

struct ProfileOptions {
  StepWindow window;
  // Measures this rank while all others measure themselves; all call it together. Null: unknown.
  std::function<Peaks(const Config&, comm::Communicator&, ops::Backend&)> measure_peaks;
};

}  // namespace trireme::train
