// Options of a profile.
#pragma once

#include <functional>

#include "comm/communicator.h"
#include "ops/backend.h"
#include "trainer/config/config.h"
#include "trainer/profile/window.h"

namespace trireme::train {

// The peak rates of a rank: floating-point operations per second, and bytes read plus written per
// second. 0 if unknown.
struct Peaks {
  double flops = 0;
  double bytes = 0;
};

struct ProfileOptions {
  StepWindow window;
  // Measures the peaks of this rank while all other ranks measure theirs. Null if peaks are
  // unknown. Collective.
  std::function<Peaks(const Config&, comm::Communicator&, ops::Backend&)> measure_peaks;
};

}  // namespace trireme::train
